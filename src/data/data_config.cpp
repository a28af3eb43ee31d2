#include "data/data_config.h"

namespace tightloop {

void DataConfig::describe(Fields& fields) {
  fields.add("source", source, "What the files hold, or what is made without files");
  fields.add("train", train, "Files to learn from, by name or pattern");
  fields.add("val", val, "Files to evaluate on; without any, a part of `train` is held out");
  fields.add("train_target", train_target,
             "Of pairs in two files: the translations, line by line with `train`");
  fields.add("val_target", val_target, "Of pairs in two files: the translations, line by line with `val`");
  fields.add("missing", missing,
             "What a recipe says where its own files are not there: which ones they are and how to get them");
  fields
      .add("holdout", holdout,
           "Fraction of the documents held out for evaluation, chosen by a hash of their content")
      .range(0, 0.9);
  fields.add("holdout_by", holdout_by, "What `holdout` takes");
  fields.add("mixture", mixture,
             "Several sources at once: entries such as 'name=a source=jsonl train=a.jsonl weight=2', with "
             "any key of this "
             "section and weight (the source's share of an epoch's documents, which repeats small ones), "
             "epochs (how often it comes in an epoch, in place of a weight), cap (the most documents of it)");
  fields.add("tokenize", tokenize, "When raw files are tokenized");
  fields.add("cache", cache,
             "A folder where tokenized files are kept and mapped from, for those too large for memory "
             "(live: where their index is kept); empty: in memory");
  fields.add("documents", documents, "Where one document of a text file ends");
  fields.add("separator", separator, "The text between two documents, for `documents: separator`");
  fields.add("format", format, "What a JSON record or a Parquet row holds");
  fields.add("text_field", text_field, "The field with the text");
  fields.add("messages_field", messages_field,
             "The field with the conversation; empty: messages or conversations");
  fields.add("question_field", question_field, "The field with the question");
  fields.add("answer_field", answer_field,
             "The field with the answer; of a choice: its number, letter or text");
  fields.add("choices_field", choices_field, "The field with the choices");
  fields.add("ignore_fields", ignore_fields,
             "Fields of conversations, questions and their messages that may be left out; others that carry "
             "meaning, such as tools or reasoning_content, make a bad record");
  fields.add("preferences", preferences,
             "What is learned of a record that has an answer `chosen` and one `rejected`");
  fields.add("source_field", source_field, "Of pairs as JSON objects: the field with the sentence");
  fields.add("target_field", target_field, "Of pairs as JSON objects: the field with the translation");
  fields.add("rows", rows, "How documents become rows (sequences)");
  fields.add("order", order, "The order of documents and rows");
  fields
      .add("seq_len", seq_len, "Sequence length: tokens in a row; 0: by the size of the data and the device")
      .range(0, 1 << 20);
  fields
      .add("batch_tokens", batch_tokens, "Of pairs: maximum tokens of one side in a batch, padding included")
      .range(16, 1 << 24);
  fields
      .add("bucket", bucket,
           "Of pairs: lengths are rounded up to a multiple of this; 0: the largest of 8, 4, 2, 1 that keeps "
           "padding under 10 %")
      .range(0, 1 << 12);
  fields.add(
      "loss_after", loss_after,
      "Learn only what follows the first occurrence of this text in a document, the end token included");
  fields.add(
      "begin_token", begin_token,
      "The token before each text (conversations have those of their template): none, or its name, such "
      "as <|bos|>");
  fields.add("end_token", end_token,
             "The token behind each text: auto (the tokenizer's end of text), none, or its name");
  fields.add("num_workers", num_workers, "Threads that prepare batches; 0: the training thread prepares them")
      .range(0, 256);
  fields.add("prefetch_factor", prefetch_factor, "Batches that each of those threads may prepare ahead")
      .range(1, 1024);
  fields.add("pin_memory", pin_memory,
             "Keep batches in pinned memory where the device has it, for faster copies");
  fields.add("tokenizer_threads", tokenizer_threads, "Threads that tokenize; 0 uses all cores").range(0, 256);
  fields.add("tokenizer_batch_size", tokenizer_batch_size, "Documents that a tokenizer thread takes at once")
      .range(1, 1 << 20);
  fields.add("on_bad_record", on_bad_record, "What becomes of records that cannot be used");
  fields.add("max_record_bytes", max_record_bytes, "Longest record that is read whole")
      .range(16, static_cast<double>(int64_t{1} << 40));
}

}  // namespace tightloop

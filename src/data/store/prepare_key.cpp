#include "data/store/prepare_key.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "core/files.h"
#include "core/hash.h"
#include "data/read/data_files.h"
#include "data/render/built_in_templates.h"
#include "data/store/held_out_tail.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {

namespace {

/// The settings of a section as YAML. Those that came after the first folders were prepared are left out
/// while they have their defaults, so that what was prepared before them stays good.
template <class Section>
std::string hashed_text(const std::string& name, Section section) {
  static const std::set<std::string> later{
      "data.ignore_fields",  "data.missing",        "data.preferences",   "data.order", "data.begin_token",
      "data.end_token",      "chat.template",       "chat.answer_tokens", "chat.learn", "chat.learn_thinking",
      "chat.empty_thinking", "chat.system_prompts", "chat.system_share",  "chat.today"};
  Section standard;
  Fields fields, defaults;
  section.describe(fields);
  standard.describe(defaults);
  std::string text = name + ":\n";
  for (size_t i = 0; i < fields.all().size(); ++i) {
    const Field& field = fields.all()[i];
    if (later.contains(name + "." + field.name()) && field.text() == defaults.all()[i].text()) continue;
    text += fmt::format("  {}: {}\n", field.name(), field.text());
  }
  return text;
}

}  // namespace

uint64_t prepare_key(const SourceOptions& options) {
  DataConfig data = options.data;
  // How the work is shared out does not change what comes of it.
  const DataConfig standard;
  data.num_workers = standard.num_workers, data.prefetch_factor = standard.prefetch_factor;
  data.pin_memory = standard.pin_memory, data.tokenizer_threads = standard.tokenizer_threads;
  data.tokenizer_batch_size = standard.tokenizer_batch_size;
  data.rows = standard.rows, data.order = standard.order, data.seq_len = standard.seq_len,
  data.cache = standard.cache;
  data.tokenize = standard.tokenize, data.missing = standard.missing;
  // Of two files of pairs, 'auto' refuses what 'skip' leaves out.
  const bool two_files = !data.train_target.empty() || !data.val_target.empty();
  if (data.on_bad_record == OnBadRecord::kAuto && !two_files) data.on_bad_record = OnBadRecord::kSkip;
  ChatConfig chat = options.chat;
  chat.form = resolve_form(options.chat, options.tokenizer);
  std::string all = hashed_text("data", data) + hashed_text("tasks", options.tasks) +
                    hashed_text("chat", chat) + hex64(options.tokenizer.fingerprint());
  all += built_in_template(chat.form);
  if (chat.form == ChatForm::kTemplate) {
    const ChatTemplateFiles& files = options.tokenizer.chat();
    for (const auto& [name, text] : files.tokens) all += fmt::format("token {} {}\n", name, text);
    all += "day " + (chat.today.empty() ? files.day : chat.today) + "\n";
    for (const auto& [name, text] : files.templates) all += fmt::format("template {} {}\n", name, text);
  }
  if (options.target_tokenizer) all += hex64(options.target_tokenizer->fingerprint());
  if (holds_out_tail(options.data)) all += fmt::format("tail, of rows of {}\n", options.data.seq_len);
  if (!data.generated()) {
    for (const auto& patterns : {data.train, data.val, data.train_target, data.val_target})
      for (const fs::path& path : expand_all(patterns))
        all += fmt::format("{} {} {}\n", path.string(), file_bytes(path), file_time(path));
  }
  return hash64(all);
}

}  // namespace tightloop

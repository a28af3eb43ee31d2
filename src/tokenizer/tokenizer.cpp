#include "tokenizer/tokenizer.h"

#include "core/error.h"
#include "core/files.h"
#include "core/threads.h"
#include "tokenizer/bpe.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/jinja/template_files.h"
#include "tokenizer/openai_files.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {

namespace {

std::unique_ptr<Tokenizer> load_hf_json(const fs::path& path) {
  BpeModel model = read_hf_json(path);
  const fs::path config = path.parent_path() / "tokenizer_config.json";
  if (path_exists(config)) read_hf_config(config, model);
  return std::make_unique<Bpe>(std::move(model), path.string());
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path);

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  if (path_exists(folder / "tokenizer.json")) return load_hf_json(folder / "tokenizer.json");
  if (path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt"))
    return std::make_unique<Bpe>(read_gpt2_files(folder / "vocab.json", folder / "merges.txt"),
                                 folder.string());
  std::vector<fs::path> found;
  for (const fs::path& entry : folder_entries(folder))
    if (entry.extension() == ".tiktoken" || entry.extension() == ".model") found.push_back(entry);
  if (found.size() == 1) return load_file(found[0]);
  const fs::path inside = folder / "tokenizer";  // as a run has it
  throw data_error(
      "the folder '{}' has no tokenizer: no tokenizer.json, no vocab.json with merges.txt, and {} .tiktoken "
      "or .model files.{}",
      folder.string(), found.size(),
      is_folder(inside) ? fmt::format(" Did you mean '{}'?", inside.string()) : "");
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path) {
  if (!path_exists(path))
    throw data_error("there is no file or folder '{}' to read a tokenizer from.", path.string());
  const std::string name = path.filename().string(), extension = path.extension().string();
  if (name == "vocab.json" && path_exists(path.parent_path() / "merges.txt"))
    return std::make_unique<Bpe>(read_gpt2_files(path, path.parent_path() / "merges.txt"), path.string());
  if (extension == ".json") return load_hf_json(path);
  if (extension == ".tiktoken") return std::make_unique<Bpe>(read_tiktoken(path), path.string());
  if (extension == ".model") return std::make_unique<SentencePiece>(read_tokenizer_file(path), path.string());
  throw data_error(
      "'{}' is not a tokenizer file by its name: tokenizer.json, vocab.json beside merges.txt, *.tiktoken, "
      "*.model and *.gguf are.",
      path.string());
}

}  // namespace

std::string_view bracketed(std::string_view text) {
  constexpr size_t kLongestName = 64;  // bytes of a token's name, so that a text of brackets costs no more
  const char close = text.empty() ? 0 : text[0] == '<' ? '>' : text[0] == '[' ? ']' : 0;
  const size_t end = close ? text.substr(0, kLongestName).find(close) : text.npos;
  return end == text.npos || end == 1 ? std::string_view() : text.substr(0, end + 1);
}

const ChatTemplateFiles& Tokenizer::chat() const {
  static const ChatTemplateFiles none;
  return chat_ ? *chat_ : none;
}

void Tokenizer::set_chat(ChatTemplateFiles files) {
  chat_ = std::make_shared<const ChatTemplateFiles>(std::move(files));
}

void Tokenizer::save(const fs::path& folder) const {
  write(folder);
  chat().write(folder);
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  if (is_gguf_name(path) && is_file(path)) return read_gguf_tokenizer(GgufFile(path));
  auto tokenizer = is_folder(path) ? load_folder(path) : load_file(path);
  tokenizer->set_chat(find_chat_template(is_folder(path) ? path : path.parent_path()));
  return tokenizer;
}

void encode_batch(const Tokenizer& tokenizer, std::span<const std::string_view> texts,
                  std::vector<std::vector<int32_t>>& ids, int threads, SpecialText special) {
  ids.resize(texts.size());
  parallel_for(texts.size(), threads, 8, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; ++i) {
      ids[i].clear();
      tokenizer.encode(texts[i], ids[i], special);
    }
  });
}

}  // namespace tightloop

#include "ops/product_choices.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <sstream>

namespace tightloop::cuda {

namespace {

constexpr const char* kFirstLine = "tightloop products 1";
using Words = decltype(cublasLtMatmulAlgo_t::data);
constexpr size_t kWords = sizeof(Words) / sizeof(uint64_t);

}  // namespace

ProductChoices::ProductChoices(fs::path file) : file_(std::move(file)) {
  try {
    if (!file_.empty() && is_file(file_)) add_text(read_file(file_));
  } catch (const std::exception&) {  // a cache that cannot be read is none
  }
}

const ProductChoice* ProductChoices::find(const ProductKey& key) const {
  const auto at = known_.find(key);
  return at == known_.end() ? nullptr : &at->second;
}

void ProductChoices::add(const ProductKey& key, const ProductChoice& choice) {
  known_[key] = choice;
  if (file_.empty() || choice.none) return;  // what failed today may be a full device
  try {
    make_folder(file_.parent_path());
    write_file_whole(file_, to_text());
  } catch (const std::exception&) {  // a full disk, say: not worth a try for each product
    file_.clear();
  }
}

// A line for each: the key, then torch or the algorithm's words.
std::string ProductChoices::to_text() const {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const auto& [key, choice] : known_) {
    if (choice.none) continue;
    for (const int64_t number : key) text += fmt::format("{} ", number);
    if (!choice.algorithm) {
      text += "torch";
    } else {
      for (const uint64_t word : choice.algorithm->data) text += fmt::format("{:016x} ", word);
    }
    text += '\n';
  }
  return text;
}

void ProductChoices::add_text(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    ProductKey key;
    bool whole = true;
    for (int64_t& number : key) whole = whole && (fields >> number);
    std::string field;
    if (!whole || !(fields >> field)) continue;
    ProductChoice choice;
    if (field != "torch") {
      choice.algorithm.emplace();
      for (size_t i = 0; whole && i < kWords; ++i) {
        char* end = nullptr;
        choice.algorithm->data[i] = std::strtoull(field.c_str(), &end, 16);
        whole = field.size() == 16 && *end == '\0' && (i + 1 == kWords || fields >> field);
      }
    }
    if (whole) known_.insert_or_assign(key, choice);
  }
}

fs::path product_choices_file(const std::string& device, size_t library_version) {
  fs::path cache;
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder)
    cache = folder;
  else if (const char* home = std::getenv("HOME"); home && *home)
    cache = fs::path(home) / ".cache";
  else
    return {};
  std::string name;
  for (const char c : device) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return cache / "tightloop" / fmt::format("products-{}-cublaslt-{}.txt", name, library_version);
}

}  // namespace tightloop::cuda

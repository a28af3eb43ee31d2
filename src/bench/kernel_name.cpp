#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/kernel_table.h"

namespace tightloop {

namespace {

using Text = std::string_view;

constexpr std::pair<Text, Text> kFloats[] = {
    {"float", "fp32"},      {"double", "fp64"},       {"BFloat16", "bf16"},    {"__nv_bfloat16", "bf16"},
    {"bfloat16_t", "bf16"}, {"Half", "fp16"},         {"__half", "fp16"},      {"half_t", "fp16"},
    {"half", "fp16"},       {"Float8_e4m3fn", "fp8"}, {"__nv_fp8_e4m3", "fp8"}};
constexpr std::pair<Text, Text> kIntegers[] = {
    {"long", "int64"}, {"int", "int32"}, {"short", "int16"}, {"char", "int8"}, {"bool", "bool"}};

/// Words of C++, and templates that stand around every functor alike.
constexpr Text kNoFunctors[] = {"lambda",
                                "operator",
                                "const",
                                "unsigned",
                                "signed",
                                "true",
                                "false",
                                "void",
                                "gpu_kernel_impl",
                                "gpu_kernel_impl_nocast",
                                "gpu_index_kernel",
                                "BinaryFunctor",
                                "AUnaryFunctor",
                                "BUnaryFunctor",
                                "ReduceOp",
                                "func_wrapper_t",
                                "OpaqueType",
                                "array",
                                "OffsetCalculator",
                                "TrivialOffsetCalculator",
                                "TensorIteratorBase",
                                "TensorIterator",
                                "Tensor",
                                "Scalar",
                                "complex",
                                "__nv_hdl_wrapper_t",
                                "__nv_dl_wrapper_t",
                                "__nv_dl_tag"};
constexpr Text kNoFunctorEndings[] = {"_traits", "Traits", "Policy", "Metadata", "Params"};

struct NameWord {
  Text text;
  size_t end;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The names in a piece of a type, without the namespaces before them.
std::vector<NameWord> words_of(Text text) {
  std::vector<NameWord> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const bool name = end > i && !std::isdigit(static_cast<unsigned char>(text[i]));
    if (name && !text.substr(end).starts_with("::")) words.push_back({text.substr(i, end - i), end});
    i = std::max(end, i + 1);
  }
  return words;
}

template <size_t N>
std::optional<Text> find(const std::pair<Text, Text> (&names)[N], Text word) {
  const auto found = std::ranges::find(names, word, &std::pair<Text, Text>::first);
  return found == std::end(names) ? std::nullopt : std::optional(found->second);
}

bool is_functor(Text word) {
  return !find(kFloats, word) && !find(kIntegers, word) && !word.starts_with("enable_sm") &&
         std::ranges::find(kNoFunctors, word) == std::end(kNoFunctors) &&
         std::ranges::none_of(kNoFunctorEndings, [&](Text ending) { return word.ends_with(ending); });
}

/// Cuts at each `mark` that is outside of all brackets. What follows a closing bracket too many is left out.
std::vector<Text> split(Text text, char mark) {
  std::vector<Text> pieces;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (depth == 0 && text[i] == mark) pieces.push_back(text.substr(start, i - start)), start = i + 1;
    if (Text("<({").find(text[i]) != Text::npos) ++depth;
    if (Text(">)}").find(text[i]) != Text::npos && --depth < 0) {
      text = text.substr(0, i);
      break;
    }
  }
  pieces.push_back(text.substr(start));
  return pieces;
}

std::optional<Text> dtype_in(Text text, bool integers) {
  for (const NameWord& word : words_of(text)) {
    if (const auto name = find(kFloats, word.text)) return name;
    if (const auto name = find(kIntegers, word.text); name && integers) return name;
  }
  return {};
}

struct Functor {
  Text name;
  std::optional<Text> dtype;
};

std::vector<Functor> functors_in(Text arguments) {
  std::vector<Functor> functors;
  for (const Text argument : split(arguments, ',')) {
    const auto words = words_of(argument);
    const auto found = std::ranges::find_if(words, is_functor, &NameWord::text);
    if (found != words.end())
      functors.push_back({found->text, dtype_in(argument.substr(found->end), /*integers=*/true)});
  }
  return functors;
}

void remove_all(std::string& text, Text what) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) text.erase(at, what.size());
}

}  // namespace

std::string short_kernel_name(std::string name) {
  if (name.starts_with("Memcpy") || name.starts_with("Memset")) return name;
  std::string whole = name;
  remove_all(whole, "(anonymous namespace)::");
  // A return type comes first, parameters last.
  const Text kernel = split(split(whole, '(').front(), ' ').back();
  const Text path = kernel.substr(0, kernel.find('<'));
  const size_t colons = path.rfind("::");
  std::string head(colons == Text::npos ? path : path.substr(colons + 2));
  if (head.empty()) return name;
  if (head == "kernel" && colons != Text::npos) {
    const size_t before = path.rfind("::", colons - 1);
    head = path.substr(before == Text::npos ? 0 : before + 2);
  }
  if (path.size() == kernel.size()) return head;

  const Text arguments = kernel.substr(path.size() + 1);
  const auto functors = functors_in(arguments);
  const auto with_dtype = [&](std::string text, std::optional<Text> dtype) {
    if (!dtype) dtype = dtype_in(arguments, /*integers=*/false);
    return dtype ? text + "<" + std::string(*dtype) + ">" : text;
  };
  if (functors.empty()) return with_dtype(head, {});
  std::string result = with_dtype(std::string(functors[0].name), functors[0].dtype);
  // Which operation is in an argument of its own there.
  if (head == "multi_tensor_apply_kernel" && functors.size() > 1)
    result += " " + std::string(functors[1].name);
  if (head == "Kernel" || head == "Kernel2" || head == "device_kernel") return result;
  if (head.find("elementwise") != std::string::npos) return "elementwise: " + result;
  if (head.ends_with("_kernel")) head.resize(head.size() - Text("_kernel").size());
  return head + ": " + result;
}

}  // namespace tightloop

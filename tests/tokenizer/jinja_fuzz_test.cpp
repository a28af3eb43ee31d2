// Templates that nobody would write: each ends in a text or in a data error. TIGHTLOOP_FUZZ_RUNS=1000000 for
// many.
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "fuzz.h"
#include "tokenizer/jinja.h"

namespace tightloop {
namespace {

const std::vector<std::string> kTemplateWords{"{{",
                                              "}}",
                                              "{%",
                                              "%}",
                                              "{#",
                                              "#}",
                                              "-%}",
                                              "{%-",
                                              " if ",
                                              " else ",
                                              " elif ",
                                              "{% endif %}",
                                              "{% for x in a %}",
                                              "{% endfor %}",
                                              "{% set x = ",
                                              "{% set ns.a = ",
                                              "{% endset %}",
                                              "{% macro m(a, b=1) %}",
                                              "{% endmacro %}",
                                              "{% call m() %}",
                                              "{% endcall %}",
                                              "{% generation %}",
                                              "{% endgeneration %}",
                                              "{% break %}",
                                              "{% continue %}",
                                              "{% raw %}",
                                              "{% endraw %}",
                                              " recursive ",
                                              "loop",
                                              "loop.last",
                                              "loop.length",
                                              "loop(a)",
                                              "caller()",
                                              "kwargs",
                                              "varargs",
                                              "namespace(a=1)",
                                              "ns.a",
                                              "range(9)",
                                              "|list",
                                              "|map('upper')",
                                              "|selectattr('x')",
                                              "|sort",
                                              "|unique",
                                              "|groupby('name')",
                                              "|tojson",
                                              "|tojson(indent=2)",
                                              "|length",
                                              "|join(',')",
                                              "|indent",
                                              "|replace('a','b')",
                                              "|batch(2)",
                                              "|slice(2)",
                                              "|wordwrap(3)",
                                              "|truncate(3)",
                                              "|e",
                                              "|safe",
                                              "|int",
                                              "|round",
                                              "|default(x)",
                                              "|reverse",
                                              "|items",
                                              "|first",
                                              "|last",
                                              "|sum",
                                              "|min",
                                              "|format(1)",
                                              "|striptags",
                                              "|title",
                                              ".split()",
                                              ".strip('a')",
                                              ".items()",
                                              ".format(1, a=2)",
                                              ".rsplit('a', 1)",
                                              ".splitlines()",
                                              ".partition('a')",
                                              "[::-1]",
                                              "[1:]",
                                              "[-1]",
                                              "['x']",
                                              ".x",
                                              " is defined",
                                              " is in ",
                                              " not in ",
                                              " in ",
                                              " and ",
                                              " or ",
                                              " not ",
                                              " ~ ",
                                              " % ",
                                              " ** ",
                                              " // ",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              "{",
                                              "}",
                                              ",",
                                              ":",
                                              "=",
                                              "'",
                                              "\"",
                                              "\\",
                                              "\n",
                                              "9223372036854775807",
                                              "-1",
                                              "0",
                                              "1e308",
                                              "'%s'",
                                              "'{}'",
                                              "none",
                                              "true",
                                              "s",
                                              "d",
                                              "users",
                                              "tree",
                                              "html",
                                              "*a",
                                              "**d",
                                              "m(1)",
                                              "messages",
                                              "\xC3\xA9",
                                              "\xF0\x9F\x98\x80"};

TEST(JinjaFuzz, a_damaged_template_is_a_data_error_or_renders) {
  const auto file = nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/jinja.json"));
  std::vector<std::string> seeds;
  for (const auto& item : file["cases"])
    if (item["template"].get_ref<const std::string&>().find("0000") == std::string::npos)
      seeds.push_back(item["template"]);
  JinjaVariables variables;
  variables.add_record(file["variables"].dump(), "the record");
  jinja::JinjaLimits limits;
  limits.steps = 20'000, limits.value_bytes = 1 << 18, limits.built_bytes = 1 << 22,
  limits.output_bytes = 1 << 18;
  uint64_t rendered = 0;
  testing::fuzz(seeds, testing::fuzz_runs(20000), kTemplateWords, [&](std::string& bytes, Random& random) {
    if (random.below(4) == 0) bytes += seeds[random.below(seeds.size())];  // what two do to each other
    try {
      JinjaTemplate(bytes, "T", limits).render(variables, testing::kJinjaNow);
      ++rendered;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kData) << error.what();
    }
  });
  EXPECT_GT(rendered, 0u);
}

}  // namespace
}  // namespace tightloop

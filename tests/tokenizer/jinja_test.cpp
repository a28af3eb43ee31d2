// What jinja2 does is in the golden file (jinja_golden_test.cpp); here is what it cannot say: errors as
// sentences, byte ranges, limits, threads.
#include <thread>

#include "tokenizer/jinja.h"

namespace tightloop {
namespace {

using testing::jinja_error;
using testing::render_jinja;

TEST(Jinja, a_chat_is_rendered) {
  const std::string text =
      "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m['content'] | trim }}\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
  const std::string messages =
      R"("messages":[{"role":"user","content":" Hi "},{"role":"assistant","content":"Yo"}])";
  EXPECT_EQ(render_jinja(text, "{" + messages + R"(,"bos_token":"<s>"})").text,
            "<s><|user|>\nHi\n<|assistant|>\nYo\n");
  EXPECT_EQ(render_jinja(text, "{" + messages + R"(,"add_generation_prompt":true})").text,
            "<|user|>\nHi\n<|assistant|>\nYo\n<|assistant|>\n");
}

TEST(Jinja, errors_name_the_source_and_the_line) {
  EXPECT_EQ(jinja_error("a\n{{ x.y }}"), "T, line 2: 'x' is undefined.");
  EXPECT_EQ(jinja_error("\n\n{% if %}"), "T, line 3: an expression was expected.");
  EXPECT_EQ(jinja_error("{% for x in 5 %}{% endfor %}"), "T, line 1: 'int' object is not iterable.");
  EXPECT_EQ(jinja_error("{{ 1 }}\n{{ 'a'|nope }}"), "T, line 2: there is no filter named 'nope'.");
  EXPECT_EQ(jinja_error("{% macro m() %}\n{{ 1/0 }}{% endmacro %}\n\n{{ m() }}"),
            "T, line 2: division by zero.");
  EXPECT_EQ(jinja_error("{{ {'a': 1}.b.c }}"), "T, line 1: 'dict object' has no attribute 'b'.");
  EXPECT_EQ(jinja_error("{% set x = [] %}\n{{ x.append(1) }}"),
            "T, line 2: access to attribute 'append' of 'list' object is unsafe.");
}

TEST(Jinja, what_a_template_raises_is_told_in_its_words) {
  EXPECT_EQ(jinja_error("\n{{ raise_exception('Roles must alternate!') }}"),
            "T, line 2, refuses this: Roles must alternate!");
}

TEST(Jinja, other_files_are_refused) {
  for (const std::string tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"})
    EXPECT_NE(jinja_error("{% " + tag + " %}").find("stands alone"), std::string::npos) << tag;
}

TEST(Jinja, a_template_must_be_utf8_and_a_record_an_object) {
  EXPECT_EQ(jinja_error("\xff"), "T is not UTF-8.");
  EXPECT_NE(jinja_error("", "[1]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(jinja_error("", "{").find("not JSON"), std::string::npos);
  EXPECT_NE(jinja_error("", R"({"x":18446744073709551615})").find("64 bits"), std::string::npos);
}

TEST(Jinja, generated_parts_are_ranges_of_bytes) {
  const auto chat = render_jinja(
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}."
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
      R"({"messages":[{"role":"user","content":"é"},{"role":"assistant","content":"ü"},{"role":"assistant","content":""}]})");
  ASSERT_EQ(chat.generated.size(), 2u);
  const auto part = [&](size_t i) {
    return chat.text.substr(chat.generated[i].first, chat.generated[i].second - chat.generated[i].first);
  };
  EXPECT_EQ(part(0), "ü.");
  EXPECT_EQ(part(1), ".");
}

TEST(Jinja, the_time_can_be_fixed) {
  EXPECT_EQ(
      render_jinja("{{ strftime_now('%Y-%m') }}|{{ strftime_now('') }}|{{ strftime_now('%f%z') }}").text,
      "2024-11||000000");
}

TEST(Jinja, without_tools_they_are_none) {
  EXPECT_EQ(render_jinja(
                "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ other is defined }}")
                .text,
            "TrueTrueFalseFalse");
}

TEST(Jinja, dicts_keep_the_order_of_the_record) {
  EXPECT_EQ(render_jinja("{{ x | tojson }}", R"({"x":{"b":1,"a":{"z":2,"c":3},"b":4}})").text,
            R"({"b": 4, "a": {"z": 2, "c": 3}})");
}

TEST(Jinja, dicts_with_many_keys_find_each) {
  EXPECT_EQ(render_jinja("{% set d = dict() %}{% set ns = namespace(l=[]) %}{% for i in range(50) %}"
                         "{% set ns.l = ns.l + [(i, i * i)] %}{% endfor %}{% set d = dict(ns.l) %}"
                         "{{ d[49] }} {{ d[7.0] }} {{ d[50] is defined }} {{ d == dict(ns.l|reverse) }}")
                .text,
            "2401 49 False True");
}

TEST(Jinja, one_template_is_rendered_by_many_threads) {
  const JinjaTemplate chat(
      "{% macro m(x) %}[{{ x }}]{% endmacro %}{% for x in xs %}{{ m(x) ~ loop.index }}{% endfor %}");
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        JinjaVariables variables;
        variables.add_record(R"({"xs":["a","b","c"]})", "the record");
        results[i] = chat.render(variables).text;
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, "[a]1[b]2[c]3");
}

TEST(JinjaLimits, loops_and_texts_end) {
  const std::string forever =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_NE(jinja_error(forever).find("too many steps"), std::string::npos);
  for (const std::string text :
       {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['ab']) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['ab']) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
        "%}{{ ns.x == [ns.x] }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'x' * 9999999999 }}", "{{ [1] * 9999999999 }}", "{{ 'x'.center(9999999999) }}",
        "{{ '%9999999d' % 1 * 99 }}", "{{ '{:>999999999}'.format(1) }}",
        "{{ 'a'|indent(99999999999, true) }}", "{{ 'a'.zfill(99999999999) }}",
        "{{ ('a' * 99999).replace('a', 'a' * 9999) }}", "{{ 'a\\t'.expandtabs(99999999999) }}",
        "{{ [1]|batch(99999999, 0)|list }}", "{{ 2 ** 99999 }}", "{{ 9223372036854775807 + 1 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 10 ** 18 * 10 }}", "{{ 1e308|int }}"})
    EXPECT_FALSE(jinja_error(text).empty()) << text;
}

TEST(JinjaLimits, output_is_limited) {
  jinja::JinjaLimits limits;
  limits.output_bytes = 10;
  EXPECT_EQ(render_jinja("{{ 'x' * 10 }}", "{}", limits).text, "xxxxxxxxxx");
  EXPECT_EQ(jinja_error("{{ 'x' * 11 }}", "{}", limits),
            "T, line 1: the template writes more than 10 bytes.");
}

TEST(JinjaLimits, nesting_is_limited) {
  const auto repeated = [](std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& text :
       {"{{ " + repeated("(", 100000), "{{ " + repeated("[", 100000), "{{ " + repeated("-", 100000) + "1 }}",
        "{{ " + repeated("not ", 100000) + "1 }}", "{{ 1" + repeated("+1", 100000) + " }}",
        "{{ 1" + repeated("|abs", 100000) + " }}", "{{ x" + repeated(".a", 100000) + " }}",
        "{{ 1" + repeated(" if 1 else 1", 100000) + " }}", repeated("{% if 1 %}", 100000),
        "{{ 1" + repeated(" is eq 1", 100000) + " }}", "{{ a" + repeated("[a", 100000) + " }}",
        "{% set " + repeated("(", 100000) + "x"})
    EXPECT_FALSE(jinja_error(text).empty());
  EXPECT_NE(jinja_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("too deeply"),
            std::string::npos);
  EXPECT_NE(jinja_error("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").find("too deeply"),
            std::string::npos);
  for (const std::string step : {"[ns.x]", "{'a': ns.x}", "ns.x|default('')|map('upper')", "(ns.x,)",
                                 "[1]|map('default', ns.x)", "[ns.x].index", "[1]|batch(1, ns.x)"})
    EXPECT_FALSE(jinja_error("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = " +
                             step + " %}{% endfor %}")
                     .empty())
        << step;
}

TEST(JinjaLimits, namespaces_may_hold_themselves) {
  EXPECT_EQ(
      render_jinja("{% set a = namespace() %}{% set a.a = a %}{% macro m() %}{% endmacro %}{% set a.m = m %}"
                   "{% for x in [1] %}{% set a.l = loop %}{{ loop.changed(loop) }}{% endfor %}ok")
          .text,
      "Trueok");
  EXPECT_FALSE(jinja_error("{% set a = namespace() %}{% set a.a = a %}{{ a }}").empty());
  // A chain of them, each held by the one before.
  EXPECT_EQ(render_jinja("{% set ns = namespace(last=namespace()) %}{% for i in range(50000) %}"
                         "{% set new = namespace() %}{% set last = ns.last %}{% set last.next = new %}"
                         "{% set ns.last = new %}{% endfor %}ok")
                .text,
            "ok");
}

}  // namespace
}  // namespace tightloop

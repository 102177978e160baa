// Chat formats and templates against goldens/chat.inc, which transformers rendered.
#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"

using namespace rw;
using namespace std::literals;

namespace {

struct ChatGolden {
  std::string_view name;
  std::string_view jinja;
  std::vector<std::pair<std::string_view, std::string_view>> texts;  // with a prompt, and without
};
#include "tests/goldens/chat.inc"

BpeTokenizer with_template(std::string_view jinja) {
  BpeParts parts = train_bpe({}, {.size = 300, .special_tokens = {"<s>", "</s>"}});
  parts.bos = 0;
  parts.eos = {1};
  parts.chat_template = jinja;
  return BpeTokenizer(parts);
}

std::string template_error(std::string_view jinja) {
  try {
    ChatFormat format(with_template(jinja));
    return format.name();
  } catch (const Error& error) {
    return error.what();
  }
}

// Templates are run by python3 with jinja2.
bool has_jinja() {
  const bool found = std::system(
                         "python3 -I -c 'import jinja2' 2> /dev/null || "
                         "/usr/bin/python3 -I -c 'import jinja2' 2> /dev/null") == 0;
  if (!found) MESSAGE("skipped: there is no package python3-jinja2");
  return found;
}

// Puts the date in place of its format, which is between \1 and \2 in a golden.
std::string with_todays_date(std::string text) {
  for (size_t begin = 0; (begin = text.find('\1')) != text.npos;) {
    const size_t end = text.find('\2', begin);
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char date[100];
    const size_t length =
        std::strftime(date, sizeof date, text.substr(begin + 1, end - begin - 1).c_str(), &local);
    text.replace(begin, end + 1 - begin, date, length);
  }
  return text;
}

std::string rendered_or_refused(const ChatFormat& format, std::span<const ChatMessage> chat,
                                bool prompt) {
  try {
    return format.render(chat, prompt);
  } catch (const ValueError&) {
    return "refused";
  }
}

// The texts of a golden, from one process.
void check_template(const ChatGolden& golden, std::span<const size_t> used) {
  CAPTURE(golden.name);
  std::vector<ChatRequest> requests;
  for (const size_t chat : used)
    for (const bool prompt : {true, false}) requests.push_back({chats[chat], prompt});
  const std::vector<RenderedChat> texts = run_chat_template(
      std::string(golden.jinja), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, requests);
  for (size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(used[i / 2]);
    const auto& [prompted, plain] = golden.texts[i / 2];
    const std::string expected = with_todays_date(std::string(i % 2 == 0 ? prompted : plain));
    CHECK((texts[i].refusal.empty() ? texts[i].text : "refused") == expected);
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("chat format: the formats with a name render as templates of their kind") {
  for (const ChatGolden& golden : chat_goldens) {
    CAPTURE(golden.name);
    const ChatFormat format(with_template("no template"), golden.name);
    CHECK(format.name() == golden.name);
    for (size_t i = 0; i < std::size(chats); ++i) {
      CAPTURE(i);
      CHECK(rendered_or_refused(format, chats[i], true) == golden.texts[i].first);
      CHECK(rendered_or_refused(format, chats[i], false) == golden.texts[i].second);
    }
  }
  CHECK(ChatFormat(with_template(""), "chatml").end_of_turn() == "<|im_end|>");
  CHECK(ChatFormat(with_template(""), "llama3").end_of_turn() == "<|eot_id|>");
  CHECK_THROWS_AS(ChatFormat(with_template(""), "alpaca"), ValueError);
}

TEST_CASE("chat format: published templates that are known by their bytes need no Jinja") {
  const std::pair<std::string_view, const char*> known[] = {
      {"teknium/OpenHermes-2.5-Mistral-7B", "chatml"},
      {"HuggingFaceTB/SmolLM2", "chatml"},
      {"Qwen-Qwen2.5-7B-Instruct", "chatml"},
      {"Qwen-Qwen3-0.6B", "qwen3"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3.1"},
      {"google/gemma-3", "gemma"},
      {"meta-llama/Llama-2-chat", "llama2"}};
  for (const auto& [name, format_name] : known) {
    CAPTURE(name);
    const auto* golden = std::ranges::find(published_goldens, name, &ChatGolden::name);
    REQUIRE(golden != std::end(published_goldens));
    const ChatFormat format(with_template(golden->jinja));
    CHECK(format.name() == format_name);
    for (size_t i = 0; i < std::size(published_chats); ++i) {
      CAPTURE(i);
      const std::vector<ChatMessage>& chat = chats[published_chats[i]];
      CHECK(rendered_or_refused(format, chat, true) == golden->texts[i].first);
      CHECK(rendered_or_refused(format, chat, false) == golden->texts[i].second);
    }
  }
}

TEST_CASE("chat format: templates are run as transformers runs them") {
  if (!has_jinja()) return;
  CHECK(std::size(published_goldens) > 30);
  for (const ChatGolden& golden : published_goldens) check_template(golden, published_chats);
  std::vector<size_t> all;
  for (size_t i = 0; i < std::size(chats); ++i) all.push_back(i);
  for (const ChatGolden& golden : chat_goldens) check_template(golden, all);
}

TEST_CASE("chat format: a template of one's own, with the token that ends an answer") {
  if (!has_jinja()) return;
  const ChatFormat format(with_template(
      "{{ bos_token }}{% for m in messages %}{% generation %}{{ m.role }}: {{ m.content }}"
      "{% endgeneration %}{{ ' ' + eos_token }}{% break %}{% endfor %}{{ messages[0] | tojson }}"));
  CHECK(format.name() == "template");
  const std::vector<ChatMessage> chat = {{"user", "<é>\xFF"}};
  CHECK(format.render(chat) ==
        "<s>user: <é>\uFFFD </s>{\"role\": \"user\", \"content\": \"<é>\uFFFD\"}");
  CHECK(format.end_of_turn().empty());  // it never comes to the answer
  const auto end_of = [](std::string_view jinja) {
    return ChatFormat(with_template(jinja)).end_of_turn();
  };
  CHECK(end_of("{% for m in messages %}{{ m.content }}\n</s>\n{% endfor %}") == "</s>");
  CHECK(end_of("{% for m in messages %}{{ m.content }}\n{% endfor %}").empty());
  CHECK(end_of("{{ raise_exception('no') }}").empty());
}

TEST_CASE("chat format: what cannot be rendered is an error that says what to do") {
  CHECK(template_error("").find("--chat-format chatml") != std::string::npos);
  CHECK(template_error("").find("there is none") != std::string::npos);
  const ChatFormat named(with_template(""), "chatml");
  CHECK_THROWS_AS(named.render({}), ValueError);
  const std::vector<ChatMessage> tool = {{"tool", "5"}};
  CHECK_THROWS_AS(named.render(tool), ValueError);
  if (!has_jinja()) return;
  CHECK(template_error("{% if %}").find("--chat-format chatml") != std::string::npos);
  CHECK(template_error("{% for i in range(99999) %}{% for i in range(99999) %}"
                       "{% endfor %}{% endfor %}")
            .find("must be rendered within") != std::string::npos);
  const auto refusal = [](std::string_view jinja) {
    try {
      return ChatFormat(with_template(jinja)).render(chats[0]);
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
  };
  CHECK(refusal("{{ raise_exception('No system.') }}").find("No system.") != std::string::npos);
  CHECK(refusal("{{ 'a' * 3000000000 }}").find("refuses this conversation") != std::string::npos);
  CHECK(refusal("{{ ''.__class__.__mro__ }}").find("unsafe") != std::string::npos);
  CHECK(refusal("{{ messages.append(1) }}").find("refuses this conversation") != std::string::npos);
}

TEST_CASE("chat format: without python3 or jinja2 a template is refused, by the package's name") {
  try {
    run_chat_template("{{ 1 }}", {}, {}, {"rewind-has-no-such-python"});
    FAIL("no error");
  } catch (const FileError& error) {
    const std::string what = error.what();
    CHECK(what.find("the package python3-jinja2") != what.npos);
    CHECK(what.find("--chat-format chatml") != what.npos);
  }
}

TEST_SUITE_END();

// Chat formats against goldens/chat.inc, which Jinja rendered.
#include <doctest/doctest.h>

#include "core/base/error.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"
#include "data/tokenizers/chat_format.h"

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
  } catch (const ValueError& error) {
    return error.what();
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("chat format: conversations as Jinja renders them") {
  for (const ChatGolden& golden : chat_goldens) {
    CAPTURE(golden.name);
    const ChatFormat format(with_template(golden.jinja));
    CHECK(format.name() == golden.name);
    for (size_t i = 0; i < std::size(chats); ++i) {
      CAPTURE(i);
      const auto& [prompted, plain] = golden.texts[i];
      if (prompted == "refused") {
        CHECK_THROWS_AS(format.render(chats[i]), ValueError);
        continue;
      }
      CHECK(format.render(chats[i]) == prompted);
      CHECK(format.render(chats[i], false) == plain);
    }
  }
}

TEST_CASE("chat format: a name instead of a template") {
  for (const ChatGolden& golden : chat_goldens) {
    const bool has_default = golden.jinja.find("You help.") != golden.jinja.npos;
    const ChatFormat format(with_template("no template"), golden.name);
    CHECK(format.name() == golden.name);
    if (!has_default) CHECK(format.render(chats[0]) == golden.texts[0].first);
  }
  CHECK(ChatFormat(with_template(""), "chatml").end_of_turn() == "<|im_end|>");
  CHECK(ChatFormat(with_template(""), "llama3").end_of_turn() == "<|eot_id|>");
  CHECK_THROWS_AS(ChatFormat(with_template(""), "alpaca"), ValueError);
}

TEST_CASE("chat format: what is not known is an error that says what to do") {
  CHECK(template_error("").find("--chat-format chatml") != std::string::npos);
  CHECK(template_error("").find("there is none") != std::string::npos);
  CHECK(template_error("{{ bos_token + '[INST]' }}").find("is another one") != std::string::npos);
  CHECK(template_error("'<|im_start|>assistant\\n<think>\\n'").find("is another one") !=
        std::string::npos);
  const ChatFormat format(with_template(""), "chatml");
  CHECK_THROWS_AS(format.render({}), ValueError);
  const std::vector<ChatMessage> tool = {{"tool", "5"}};
  CHECK_THROWS_AS(format.render(tool), ValueError);
}

TEST_CASE("chat format: a template that asks for the date gets today's") {
  const ChatFormat format(
      with_template("<|start_header_id|> Cutting Knowledge Date strftime_now('%d %b %Y')"));
  const std::string text = format.render(chats[0]);
  CHECK(text.find("Today Date: 26 Jul 2024") == std::string::npos);
  CHECK(text.find("\nToday Date: ") != std::string::npos);
}

TEST_SUITE_END();

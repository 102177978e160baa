// Language models with their tokenizers in files, and the texts that they continue.
#include <doctest/doctest.h>

#include "backends/open.h"
#include "core/files/file_calls.h"
#include "data/base/files.h"
#include "data/tokenizers/bpe_training.h"
#include "data/tokenizers/gguf_tokenizer.h"
#include "io/models/decoder.h"
#include "nn/init.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"
#include "trainer/language/bert_tokenizer.h"
#include "trainer/language/gguf_metadata.h"
#include "trainer/language/language_model.h"
#include "trainer/language/text_generation.h"

using namespace rw;
using test::bytes_of;
using test::fault_of;
using test::message_of;

namespace {

const BpeTokenizer& tokenizer() {
  static const BpeTokenizer made = [] {
    std::vector<std::string> texts;
    for (int i = 0; i < 40; ++i)
      texts.push_back("the cat sat on the mat, number " + std::to_string(i));
    return BpeTokenizer(train_bpe(texts, {.size = 300}));
  }();
  return made;
}

DecoderConfig tiny_decoder(const std::string& type) {
  return {.model_type = type,
          .vocab_size = tokenizer().size() + 4,
          .hidden_size = 32,
          .intermediate_size = 64,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8,
          .max_position_embeddings = 64,
          .tie_word_embeddings = type != "llama"};
}

std::vector<float> logits(Decoder& model, const std::vector<int32_t>& ids) {
  const NoGrad guard;
  return model(tensor(ids, {1, static_cast<int64_t>(ids.size())})).to_vector();
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("language models: what is saved opens as the same, as a folder and as GGUF") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const std::string text = "the mat sat\n\xF0\x9F\x98\x80 <|im_end|>";
  for (const char* type : {"llama", "qwen3"}) {
    CAPTURE(type);
    Decoder model(tiny_decoder(type));
    const std::vector<int32_t> ids = tokenizer().encode(text);
    for (const char* file : {"model", "model.gguf"}) {
      CAPTURE(file);
      save_language_model(folder / file, model, tokenizer(), "f32");
      const LanguageModel opened = LanguageModel::open(folder / file, DType::f32);
      CHECK(opened.model->config() == model.config());
      CHECK(opened.tokenizer.encode(text) == ids);
      CHECK(opened.tokenizer.eos() == tokenizer().eos());
      CHECK(logits(*opened.model, ids) == logits(model, ids));
    }
    CHECK_THROWS_AS(save_language_model(folder / "model", model, tokenizer(), "q8_0"), ValueError);
    CHECK_THROWS_AS(save_language_model(folder / "x.gguf", model, tokenizer(), "q2_k"), ValueError);
    CHECK(!std::filesystem::exists(folder / "x.gguf"));
  }
}

TEST_CASE("language models: a unigram tokenizer survives a GGUF file") {
  const TemporaryFolder folder;
  const std::string table("\4\0\0\0\0\0\0\0a table", 15);
  const BpeParts parts = from_gguf({.model = "t5",
                                    .tokens = {"<pad>", "</s>", "<s>", "<what>", "\u2581a", "b"},
                                    .token_type = {3, 3, 3, 2, 1, 1},
                                    .scores = {0, 0, 0, 0, -1, -2},
                                    .bos_token_id = 2,
                                    .unknown_token_id = 3,
                                    .add_bos_token = true,
                                    .add_space_prefix = true,
                                    .remove_extra_whitespaces = true,
                                    .precompiled_charsmap = table});
  for (const bool has_sign : {false, true}) {
    GgufMetadata metadata = tokenizer_metadata(parts, 8);
    if (has_sign)
      metadata["tokenizer.ggml.precompiled_charsmap"] =
          GgufList(std::vector<int8_t>(table.begin(), table.end()));
    write_gguf(folder / "model.gguf", {}, metadata);
    const BpeTokenizer opened = read_tokenizer(folder / "model.gguf");
    CHECK(opened.parts().normalizers == parts.normalizers);
    CHECK(opened.encode("  a  b c", true, true) == std::vector<int32_t>{2, 4, 3, 5, 3, 1});
    CHECK(opened.decode(std::vector<int32_t>{4, 5}) == "ab");
  }
}

TEST_CASE("language models: a GGUF file is opened once") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "model.gguf";
  save_language_model(file, Decoder(tiny_decoder("qwen3")), tokenizer());
  int opened = 0;
  file_calls::set_hook([&](file_calls::Call call, size_t&) {
    opened += call == file_calls::Call::open;
    return 0;
  });
  LanguageModel::open(file, DType::f32);
  file_calls::set_hook({});
  CHECK(opened == 1);
}

TEST_CASE("language models: 16-bit matrices beside f32 vectors are converted without f32 of them") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  for (const char* type : {"qwen2", "gemma"}) {
    CAPTURE(type);
    DecoderConfig config = tiny_decoder(type);
    config.num_hidden_layers = 12;
    config.attention_bias = config.model_type == "qwen2";
    if (config.is_gemma()) config.hidden_act = "gelu_pytorch_tanh";
    const Decoder model(config);
    for (const Tensor& p : model.parameters())
      if (p.rank() == 1) init::uniform_(p, -0.1f, 0.1f);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      CAPTURE(name(dtype));
      for (const char* from : {"from", "from.gguf"}) {
        CAPTURE(from);
        save_language_model(folder / from, model, tokenizer(), std::string(name(dtype)));
        REQUIRE(DecoderFiles(folder / from).stored_dtype() == dtype);
        const auto convert = [&](const std::string& to, DType matrices) {
          default_device()->reset_peak();
          const uint64_t before = default_device()->memory_report().live;
          const LanguageModel opened =
              LanguageModel::open_floats(DecoderFiles(folder / from), matrices, DType::f32);
          save_language_model(folder / (to + ".gguf"), *opened.model, opened.tokenizer, "f16");
          save_language_model(folder / to, *opened.model, opened.tokenizer, "f16");
          return default_device()->memory_report().peak - before;
        };
        CHECK(convert("narrow", dtype) < 0.7 * static_cast<double>(convert("wide", DType::f32)));
        for (const char* file : {".gguf", "/model.safetensors"})
          CHECK(bytes_of(folder / (std::string("narrow") + file)) ==
                bytes_of(folder / (std::string("wide") + file)));
        if (dtype == DType::f16 && std::string_view(from).ends_with(".gguf"))
          CHECK(bytes_of(folder / "narrow.gguf") == bytes_of(folder / from));
      }
    }
  }
}

TEST_CASE("language models: a tokenizer of another model is refused") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  DecoderConfig config = tiny_decoder("qwen3");
  save_language_model(folder / "model", Decoder(config), tokenizer());
  config.vocab_size = tokenizer().size() - 1;
  save_decoder(folder / "model", Decoder(config));
  CHECK(fault_of([&] {
          LanguageModel::open(folder / "model", DType::f32);
        }).find("tokens and the model in") != std::string::npos);
  save_decoder_gguf(folder / "bare.gguf", Decoder(config), GgufType::f32);
  CHECK(fault_of([&] { read_tokenizer(folder / "bare.gguf"); }).find("must have a tokenizer") !=
        std::string::npos);
}

TEST_CASE("language models: an added token without an embedding hurts only where it occurs") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  BpeParts parts = tokenizer().parts();
  parts.tokens.push_back({"<image>", TokenType::control});
  const BpeTokenizer longer(parts);
  DecoderConfig config = tiny_decoder("qwen3");
  config.vocab_size = tokenizer().size();
  for (const char* file : {"model", "model.gguf"}) {
    CAPTURE(file);
    save_language_model(folder / file, Decoder(config), longer);
    const LanguageModel opened = LanguageModel::open(folder / file, DType::f32);
    CHECK(opened.model->config().vocab_size == tokenizer().size());
    CHECK(opened.tokenizer.encode("the cat") == tokenizer().encode("the cat"));
  }
  const LanguageModel opened = LanguageModel::open(folder / "model", DType::f32);
  const auto ids = opened.tokenizer.encode("a<image>");
  REQUIRE(ids.back() == config.vocab_size);
  const std::string fault =
      message_of<ValueError>([&] { continue_text(*opened.model, opened.tokenizer, ids, {}); });
  CAPTURE(fault);
  CHECK(fault.find("\"<image>\"") != fault.npos);
  continue_text(*opened.model, opened.tokenizer, opened.tokenizer.encode("a"),
                {.generate = {.max_new_tokens = 1}});
}

TEST_CASE("language models: another tokenizer, and the ends that the model's files name") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  BpeParts parts = tokenizer().parts();
  parts.eos = {257, 100};
  parts.eos_token = 0;
  for (const char* file : {"model", "model.gguf"}) {
    CAPTURE(file);
    save_language_model(folder / file, Decoder(tiny_decoder("qwen3")), BpeTokenizer(parts));
    const LanguageModel opened = LanguageModel::open(folder / file, DType::f32);
    CHECK(opened.tokenizer.parts().eos == std::vector<int32_t>{257, 100});
    CHECK(DecoderFiles(folder / file).special_tokens().eos == std::vector<int64_t>{257, 100});
    tokenizer().save(folder / "other");
    const LanguageModel other = LanguageModel::open(folder / file, DType::f32, folder / "other");
    CHECK(other.tokenizer.parts().eos == std::vector<int32_t>{257, 100});
    CHECK(other.tokenizer.eos() == tokenizer().eos());
  }
  CHECK(LanguageModel::open(folder / "model", DType::f32).tokenizer.eos() == 0);
  // A file whose tokenizer is not known opens with another one.
  const Decoder model(tiny_decoder("qwen3"));
  save_decoder_gguf(folder / "bare.gguf", model, GgufType::f32);
  CHECK(LanguageModel::open(folder / "bare.gguf", DType::f32, folder / "other").tokenizer.size() ==
        tokenizer().size());
}

TEST_CASE("language models: BERT's tokenizer as transformers' folders have it") {
  const TemporaryFolder folder;
  const auto put = [&](const char* name, const std::string& text) {
    write_file(folder / name, std::string_view(text));
  };
  const auto words = [&](const std::string& text) {
    const Tokenizer read = read_bert_tokenizer(folder.path);
    std::string joined;
    for (const Token& token : read.tokenize(text))
      joined += (joined.empty() ? "" : " ") + read.vocabulary().token(token.id);
    return joined;
  };
  put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncafe\n##s\nCaf\u00e9\n");
  CHECK(words("Caf\u00e9s [MASK]") == "cafe ##s [MASK]");
  CHECK(words(std::string(101, 's')) == "[UNK]");
  put("tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": null})");
  CHECK(words("Caf\u00e9s") == "Caf\u00e9 ##s");
  const Tokenizer cased = read_bert_tokenizer(folder.path);
  std::filesystem::create_directory(folder / "again");
  write_bert_tokenizer(folder / "again", cased);
  CHECK_FALSE(read_bert_tokenizer(folder / "again").options().lower_case);
  // tokenizer.json alone.
  std::filesystem::remove(folder / "vocab.txt");
  CHECK_THROWS_AS(words("a"), FileError);
  put("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "[UNK]": 1,
      "[CLS]": 2, "[SEP]": 3, "Caf\u00e9": 6, "##s": 5}},
      "added_tokens": [{"id": 4, "content": "[MASK]"}, {"id": 0, "content": "[PAD]"}]})");
  CHECK(words("Caf\u00e9s") == "Caf\u00e9 ##s");
  CHECK(read_bert_tokenizer(folder.path).vocabulary().mask == 4);
  for (const char* bad :
       {"[", "[]", "{}", R"({"model": {"type": "BPE", "vocab": {}}})",
        R"({"model": {"vocab": {"[PAD]": 7}}})", R"({"model": {"vocab": {"[PAD]": -1}}})",
        R"({"model": {"vocab": [1]}})"}) {
    CAPTURE(bad);
    put("tokenizer.json", bad);
    CHECK_THROWS_AS(words("a"), FileError);
  }
  for (const char* bad :
       {R"({"do_lower_case": 1})", R"({"strip_accents": true, "do_lower_case": false})",
        R"({"tokenize_chinese_chars": false})"}) {
    put("tokenizer_config.json", bad);
    CHECK_THROWS_AS(words("a"), FileError);
  }
}

TEST_CASE("language models: a tokenizer and weights of two models are refused") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto save = [&](const char* name) {
    save_language_model(folder / name, Decoder(tiny_decoder("qwen3")), tokenizer());
  };
  save("one");
  save("other");
  const auto put = [&](const char* file, const std::string& text) {
    std::ofstream(folder / file, std::ios::binary) << text;
  };
  const auto open_one = [&] {
    return fault_of([&] { LanguageModel::open(folder / "one", DType::f32); });
  };
  CHECK(open_one() == "no FileError");
  put("one/model.safetensors", bytes_of(folder / "other/model.safetensors"));
  CHECK(open_one().find("model.safetensors' must be the file that was written with the others") !=
        std::string::npos);
  put("one/merges.txt", "of an older tokenizer");
  put("one/model-00001-of-00002.safetensors", "of older weights");
  put("one/notes.txt", "mine");
  save("one");
  CHECK(open_one() == "no FileError");
  CHECK(std::filesystem::exists(folder / "one/notes.txt"));
  CHECK(test::entries(folder / "one") == 7);  // two of the tokenizer, and the list
  put("one/tokenizer.json", bytes_of(folder / "one/tokenizer.json") + "\n");
  CHECK(open_one().find("tokenizer.json' must be") != std::string::npos);
}

TEST_CASE("language models: a text comes in whole characters and ends where it should") {
  set_default_device(open_backend("reference"));
  Decoder model(tiny_decoder("llama"));
  const std::vector<int32_t> prompt = tokenizer().encode("the cat");
  const auto run = [&](TextOptions options, int64_t tokens = 40) {
    Generator generator(11);
    std::string came;
    options.generate.max_new_tokens = tokens;
    options.generate.sample.generator = &generator;
    options.on_text = [&](std::string_view piece) { came += piece; };
    const GeneratedText text = continue_text(model, tokenizer(), prompt, options);
    CHECK(came == text.text);
    CHECK(text.prompt_tokens == static_cast<int64_t>(prompt.size()));
    return text;
  };
  const GeneratedText whole = run({});
  CHECK(whole.tokens > 10);
  CHECK(run({.generate = {.use_cache = false}}).text == whole.text);
  // The same text up to a string in its middle.
  const std::string stop = whole.text.substr(whole.text.size() / 2, 3);
  const GeneratedText part = run({.stop = {stop}});
  CHECK(part.is_complete);
  CHECK(part.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(part.tokens < whole.tokens);
  CHECK(run({}, 3).tokens == 3);
  int32_t third = -1;  // the third token that was drawn
  {
    Generator generator(11);
    int count = 0;
    model.generate(tensor(prompt, {1, static_cast<int64_t>(prompt.size())}),
                   {.max_new_tokens = 3,
                    .sample = {.generator = &generator},
                    .on_tokens = [&](auto tokens) { return third = tokens[0], ++count < 3; }});
  }
  CHECK(run({.end_tokens = {third}}).tokens == 3);
  CHECK(!run({}, 3).is_complete);
  CHECK_THROWS_AS(continue_text(model, tokenizer(), {}, {}), ValueError);
  CHECK(run({}, 64).tokens == 64 - static_cast<int64_t>(prompt.size()));
  const std::vector<int32_t> full(64, 5);
  CHECK_THROWS_AS(continue_text(model, tokenizer(), full, {}), ValueError);
}

TEST_SUITE_END();

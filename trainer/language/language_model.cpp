#include "trainer/language/language_model.h"

#include <algorithm>

#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "trainer/language/gguf_metadata.h"

namespace rw {

namespace {

SpecialTokens special_tokens(const BpeTokenizer& tokenizer) {
  const BpeParts& parts = tokenizer.parts();
  return {.bos = parts.bos, .eos = {parts.eos.begin(), parts.eos.end()}, .pad = parts.pad};
}

}  // namespace

BpeTokenizer read_tokenizer(const std::filesystem::path& path) {
  return is_gguf(path) ? BpeTokenizer(tokenizer_of(GgufFile(path))) : BpeTokenizer::load(path);
}

BpeTokenizer read_tokenizer(const DecoderFiles& model, const std::filesystem::path& path) {
  const auto checked = [&](BpeTokenizer tokenizer) {
    check_vocabulary(tokenizer, model.config(), model.path());
    return tokenizer;
  };
  if (path.empty() || path == model.path())
    return checked(model.gguf() ? BpeTokenizer(tokenizer_of(*model.gguf()))
                                : BpeTokenizer::load(model.path()));
  BpeParts parts = read_tokenizer(path).parts();
  std::vector<int32_t> ends;
  for (const int64_t id : model.special_tokens().eos)
    if (id < std::ssize(parts.tokens)) ends.push_back(static_cast<int32_t>(id));
  if (!ends.empty()) parts.eos = std::move(ends);
  return checked(BpeTokenizer(std::move(parts)));
}

void check_vocabulary(const BpeTokenizer& tokenizer, const DecoderConfig& config,
                      const std::filesystem::path& model) {
  const std::span<const BpeToken> tokens = tokenizer.parts().tokens;
  const auto rows = std::min(tokens.size(), static_cast<size_t>(config.vocab_size));
  check<FileError>(
      std::ranges::all_of(tokens.subspan(rows), [](const BpeToken& t) { return is_added(t.type); }),
      "tokenizer",
      "the tokenizer has {} tokens and the model in '{}' a vocab_size of {}: they "
      "must be of one model",
      tokenizer.size(), model.string(), config.vocab_size);
}

void check_tokens(std::span<const int32_t> ids, const BpeTokenizer& tokenizer, int64_t vocab_size) {
  for (const int32_t id : ids)
    check(
        id < vocab_size, "tokenizer",
        "the text must have no token without an embedding, got {:?}, the token {} of a model with "
        "a vocab_size of {}",
        tokenizer.token(id), id, vocab_size);
}

LanguageModel LanguageModel::open(const DecoderFiles& files, DType dtype,
                                  const std::filesystem::path& tokenizer) {
  if (!files.is_quantised()) return open_floats(files, dtype, dtype, tokenizer);
  LanguageModel opened{.tokenizer = read_tokenizer(files, tokenizer)};
  opened.model = make_decoder(files.config(), files.types(), dtype);
  files.load(*opened.model);
  return opened;
}

LanguageModel LanguageModel::open_floats(const DecoderFiles& files, DType matrices, DType vectors,
                                         const std::filesystem::path& tokenizer) {
  LanguageModel opened{.tokenizer = read_tokenizer(files, tokenizer)};
  {
    const init::SkipInit loaded_next;
    opened.model = std::make_unique<Decoder>(files.config(), matrices);
    opened.model->to(matrices, vectors);
  }
  files.load(*opened.model);
  return opened;
}

LanguageModel LanguageModel::open_merged(const DecoderFiles& files,
                                         const std::filesystem::path& adapter,
                                         const std::filesystem::path& tokenizer) {
  LanguageModel opened = open_floats(files, DType::f32, DType::f32, tokenizer);
  load_adapter(adapter, *opened.model);
  merge_lora(*opened.model);
  return opened;
}

void save_language_model(const std::filesystem::path& path, const Decoder& model,
                         const BpeTokenizer& tokenizer, const std::string& type) {
  const std::string word(type.empty() ? name(model.parameters().front().dtype()) : type);
  const GgufTypeInfo* const found = find_gguf_type(word);
  const bool is_float = word == "f32" || word == "f16" || word == "bf16";
  const bool has_blocks = found && found->blocks && found->blocks->encode;
  const bool is_nf4 = word == "nf4" && !is_gguf(path);
  check(is_nf4 || is_float || (is_gguf(path) && has_blocks), "save",
        "{} holds f32, f16, bf16, or {}, got '{}'", is_gguf(path) ? "a GGUF file" : "a folder",
        is_gguf(path) ? "q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k or q6_k" : "nf4", word);
  if (is_gguf(path))
    return save_decoder_gguf(path, model, static_cast<GgufType>(found->number),
                             tokenizer_metadata(tokenizer.parts(), model.config().vocab_size));
  const DType own = model.parameters().front().dtype();
  const DType dtype = is_nf4          ? own
                      : word == "f32" ? DType::f32
                      : word == "f16" ? DType::f16
                                      : DType::bf16;
  save_decoder(path, model,
               {.dtype = dtype,
                .nf4 = is_nf4,
                .tokens = special_tokens(tokenizer),
                .write_tokenizer = [&](const auto& folder) { tokenizer.save(folder); }});
}

}  // namespace rw

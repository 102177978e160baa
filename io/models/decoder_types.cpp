#include "io/models/decoder_types.h"

#include <fmt/format.h>

#include "core/memory/stream.h"
#include "io/models/decoder/names.h"
#include "nn/adapters/block_layers.h"
#include "nn/init.h"

namespace rw {

namespace {

// A layer without a weight.
struct EmptyLayer {
  std::string name;  // of the weight
  Linear* linear;    // null: `table`
  Embedding* table;

  Shape shape() const {
    return linear ? Shape{linear->out_features(), linear->in_features()}
                  : Shape{table->rows(), table->dimension()};
  }
  void restore(DType dtype) const {
    linear ? linear->restore_weight(dtype) : table->restore_weight(dtype);
  }
  void put(BlockMatrix blocks, DType dtype) const {
    if (linear)
      linear->substitute(std::make_unique<BlockLinear>(std::move(blocks), linear->bias));
    else
      table->substitute(std::make_unique<BlockEmbedding>(std::move(blocks), dtype));
  }
};

std::vector<EmptyLayer> empty_layers(const Module& model) {
  std::vector<EmptyLayer> found;
  for (const auto& [name, module] : model.named_modules()) {
    const EmptyLayer layer{name + ".weight", dynamic_cast<Linear*>(module),
                           dynamic_cast<Embedding*>(module)};
    if ((layer.linear && !layer.linear->weight && !layer.linear->substitute()) ||
        (layer.table && !layer.table->weight && !layer.table->substitute()))
      found.push_back(layer);
  }
  return found;
}

// The head has 6 bits where the others have 4 or 5, as llama.cpp's quantised models have it.
GgufType of_matrix(const std::string& name, GgufType type, const DecoderConfig& c) {
  const bool is_head =
      name == "output.weight" || (name == "token_embd.weight" && c.tie_word_embeddings);
  const bool has_few_bits = type == GgufType::q4_k || type == GgufType::q5_k;
  return is_head && has_few_bits ? GgufType::q6_k : type;
}

// The type of a matrix whose rows have so many elements: llama.cpp's other type of about as many
// bits where they are no whole blocks.
GgufType type_for_rows(GgufType type, int64_t columns) {
  if (columns % gguf_type_info(type).block_elements == 0) return type;
  const GgufType other = type == GgufType::q4_k   ? GgufType::q5_0
                         : type == GgufType::q5_k ? GgufType::q5_1
                         : type == GgufType::q6_k ? GgufType::q8_0
                                                  : GgufType::f16;
  return columns % gguf_type_info(other).block_elements == 0 ? other : GgufType::f16;
}

// One gives its memory back before the next one takes any.
void give_back(const Tensor& matrix) {
  if (matrix.bytes() >= least_streamed_bytes) matrix.device().swap_out(*matrix.impl().storage);
}

}  // namespace

std::map<std::string, Shape> decoder_matrices(const DecoderConfig& c) {
  const int64_t queries = c.num_attention_heads * c.heads_dim(),
                keys = c.num_key_value_heads * c.heads_dim();
  std::map<std::string, Shape> found = {
      {"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}}};
  if (!c.tie_word_embeddings) found.emplace("lm_head.weight", Shape{c.vocab_size, c.hidden_size});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto add = [&](const char* name, int64_t out, int64_t in) {
      found.emplace(layer + name + "_proj.weight", Shape{out, in});
    };
    add("self_attn.q", queries, c.hidden_size);
    add("self_attn.k", keys, c.hidden_size);
    add("self_attn.v", keys, c.hidden_size);
    add("self_attn.o", c.hidden_size, queries);
    add("mlp.gate", c.intermediate_size, c.hidden_size);
    add("mlp.up", c.intermediate_size, c.hidden_size);
    add("mlp.down", c.hidden_size, c.intermediate_size);
  }
  return found;
}

GgufType matrix_type(const std::string& name, int64_t columns, GgufType type,
                     const DecoderConfig& config) {
  return type_for_rows(of_matrix(name, type, config), columns);
}

DecoderTypes decoder_types(const DecoderConfig& config, GgufType type) {
  DecoderTypes types;
  for (const auto& [weight, shape] : decoder_matrices(config)) {
    const GgufType its_type = matrix_type(gguf_name(weight, config), shape[1], type, config);
    types.emplace(weight, gguf_type_info(its_type).blocks);
  }
  return types;
}

DecoderTypes nf4_types(const DecoderConfig& config) {
  DecoderTypes types;
  for (const auto& [weight, shape] : decoder_matrices(config))
    if (weight.find("_proj.") != std::string::npos && shape[1] % blocks::nf4.elements == 0)
      types.emplace(weight, &blocks::nf4);
  return types;
}

std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config, const DecoderTypes& types,
                                      DType dtype, bool stay_in_file) {
  const init::SkipInit loaded_next;
  const init::WithoutWeights in_blocks;
  auto model = std::make_unique<Decoder>(config);
  const PurposeScope purpose(Purpose::parameter);
  const PlaceScope place(init::weight_place());
  for (const EmptyLayer& layer : empty_layers(*model)) {
    if (layer.linear) layer.linear->to(dtype);  // its bias
    const auto found = types.find(layer.name);
    if (found == types.end() || !found->second) {
      layer.restore(dtype);
      if (stay_in_file) give_back(layer.linear ? layer.linear->weight : layer.table->weight);
      continue;
    }
    const Shape shape = layer.shape();
    const Tensor codes =
        empty(BlockMatrix::stored_shape(shape[0], shape[1], *found->second), DType::u8);
    layer.put(BlockMatrix(codes, *found->second), dtype);
    if (stay_in_file) give_back(codes);
  }
  return model;
}

}  // namespace rw

#include "models/decoder.h"

#include "benchmarks/speed/cases.h"
#include "ops/losses/losses.h"

namespace rw::speed {

// Without an update, as Inference Arena measures it.
std::vector<Case> decoder_cases() {
  return {{"decoder/smollm2-135m-1x128", 0, 0, [](DType dtype) {
             const DecoderConfig config = DecoderConfig::preset("smollm2-135m");
             const auto model = std::make_shared<Decoder>(config);
             model->to(dtype);
             constexpr int64_t length = 128;
             const Tensor ids = standard_indices({1, length}, config.vocab_size),
                          targets = standard_indices({length}, config.vocab_size);
             return forward_and_backward(
                 [=] { return cross_entropy(flatten((*model)(ids), 0, 1), targets); },
                 model->parameters());
           }}};
}

}  // namespace rw::speed

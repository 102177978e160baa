// One deep model, trained with its activations kept and recomputed in several ways: the gradients
// are the same to the bit, and the memory differs. Usage: checkpointing [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int depth = 48;
constexpr int64_t width = 64, rows = 256;

class Block : public rw::Module {
 public:
  Block() {
    register_module("norm", norm_);
    register_module("in", in_);
    register_module("out", out_);
  }
  rw::Tensor forward(rw::Tensor x) override { return x + out_(rw::gelu(in_(norm_(x)))) * 0.1f; }

 private:
  rw::LayerNorm norm_{width};
  rw::Linear in_{width, width}, out_{width, width};
};

struct Result {
  std::vector<float> gradient;
  double mebibytes = 0;
};

// One step with the model as it is; `policy` says what a segment around each block keeps.
Result run(rw::Sequential& model, const rw::Tensor& x, const rw::SavePolicy* policy = nullptr) {
  rw::Device& device = *rw::default_device();
  device.reset_peak();
  rw::Tensor y = x;
  for (size_t i = 0; i < model.size(); ++i) {
    const rw::CheckpointScope segment(policy != nullptr, policy ? *policy : rw::SavePolicy());
    y = model[i](std::move(y));
  }
  rw::mean(rw::square(std::move(y))).backward();
  const Result result{model.parameters()[0].grad().to_vector(),
                      static_cast<double>(device.memory_report().peak) / (1 << 20)};
  for (rw::Tensor p : model.parameters()) p.set_grad({});
  device.end_step();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  rw::Sequential model;
  for (int i = 0; i < depth; ++i) model.emplace<Block>();
  const rw::Tensor x = rw::randn({rows, width});

  const Result plain = run(model, x);
  bool equal = true;
  const auto show = [&](const char* how, const Result& result) {
    equal &= result.gradient == plain.gradient;
    std::printf("%-52s %6.2f MiB  gradients %s\n", how, result.mebibytes,
                result.gradient == plain.gradient ? "equal" : "DIFFER");
  };
  show("everything kept", plain);
  const rw::SavePolicy nothing, products = rw::save_matmuls();
  show("a segment around each block", run(model, x, &nothing));
  show("the same, matrix products kept", run(model, x, &products));
  {  // No marks: the plan for the least memory with every op run at most twice.
    const rw::AutoRecompute recompute({.mode = rw::AutoRecomputeOptions::Mode::memory});
    run(model, x);  // is planned from
    show("planned", run(model, x));
  }
  {  // Values are dropped when memory runs short, and made again one by one.
    const auto budget = static_cast<uint64_t>(plain.mebibytes * (1 << 20)) / 2;
    const rw::AutoRecompute recompute(
        {.mode = rw::AutoRecomputeOptions::Mode::evict, .budget = budget});
    show("evicted, to stay within half of it", run(model, x));
  }
  return equal ? 0 : 1;
}

#include "optim/lamb.h"

#include <cmath>

#include "core/launch.h"

namespace rw {

namespace {

// Elements per chunk: enough workgroups in a large parameter, few chunks in all.
constexpr int64_t chunk_size = 1 << 15;

class LambRule : public UpdateRule {
 public:
  explicit LambRule(const LambOptions& options) : options_(options) {
    check(options.lr >= 0 && std::isfinite(options.lr), "lamb", "lr must be >= 0, got {}",
          options.lr);
    check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
          "lamb", "betas must be in [0, 1), got {} and {}", options.beta1, options.beta2);
    check(options.eps >= 0, "lamb", "eps must be >= 0, got {}", options.eps);
    check(options.weight_decay >= 0, "lamb", "weight_decay must be >= 0, got {}",
          options.weight_decay);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void prepare(const FlatParameters& parameters) override {
    for (const FlatParameters::Run& run : parameters.runs())
      runs_.push_back(chunks_of(parameters, run));
  }

  void update(const Target& t) const override {
    const Chunks& c = runs_[t.run];
    const PurposeScope purpose(Purpose::workspace);
    const auto device = t.parameters.device().shared_from_this();
    const Tensor partial = empty({2, c.chunks}, DType::f32, device);
    const Tensor ratio = empty({c.parameters}, DType::f32, device);
    const Tensor &m = t.states[0], &v = t.states[1];
    const kernels::LambParams p{.offset = {},
                                .chunks = static_cast<uint32_t>(c.chunks),
                                .lr = t.learning_rate,
                                .beta1 = options_.beta1,
                                .beta2 = options_.beta2,
                                .eps = options_.eps,
                                .weight_decay = t.weight_decay};
    const Launch groups{.threads = {p.chunks, 1, 1}};
    launch("lamb_norms",
           {in(t.parameters), in(t.gradients), inout(m), inout(v), in(c.table), in(t.control),
            out(partial)},
           p, groups);
    const kernels::LambRatioParams q{.offset = {},
                                     .parameters = static_cast<uint32_t>(c.parameters),
                                     .chunks = p.chunks,
                                     .adapt = t.weight_decay != 0};
    launch("lamb_ratio", {in(partial), in(c.first), in(t.control), out(ratio)}, q,
           {.threads = {q.parameters, 1, 1}});
    launch("lamb", {inout(t.parameters), in(m), in(v), in(c.table), in(ratio), in(t.control)}, p,
           groups);
  }

 private:
  // A run's cut into chunks, as the kernels read it (shaders/params.h).
  struct Chunks {
    int64_t chunks = 0, parameters = 0;
    Tensor table, first;
  };

  static Chunks chunks_of(const FlatParameters& parameters, const FlatParameters::Run& run) {
    std::vector<int32_t> table, first = {0};
    for (const FlatParameters::Slot& slot : parameters.slots()) {
      const int64_t begin = slot.offset - run.offset, size = slot.parameter.numel();
      if (slot.slab != run.slab || begin < 0 || begin >= run.size) continue;
      const auto index = static_cast<int32_t>(first.size() - 1);
      for (int64_t at = 0; at < size; at += chunk_size)
        for (const int64_t v : {begin + at, std::min(chunk_size, size - at), int64_t{index}})
          table.push_back(static_cast<int32_t>(v));
      first.push_back(static_cast<int32_t>(table.size() / 3));
    }
    const auto upload = [&](const std::vector<int32_t>& values) {
      const PurposeScope purpose(Purpose::optimizer);
      const auto device = parameters.device().shared_from_this();
      Tensor t = empty({static_cast<int64_t>(values.size())}, DType::i32, device);
      t.copy_from(values);
      return t;
    };
    return {first.back(), static_cast<int64_t>(first.size() - 1), upload(table), upload(first)};
  }

  LambOptions options_;
  std::vector<Chunks> runs_;
};

}  // namespace

Lamb::Lamb(std::vector<Tensor> parameters, const LambOptions& options)
    : Lamb(one_group(std::move(parameters)), options) {}

Lamb::Lamb(std::vector<ParameterGroup> groups, const LambOptions& options)
    : Optimizer(std::move(groups), std::make_unique<LambRule>(options)) {}

}  // namespace rw

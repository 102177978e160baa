// The functions that start a run backward, backward() and grad(), and the hooks that it calls.
#include "core/autograd/gradients.h"

#include "core/autograd/backward.h"

namespace rw {

void Tensor::backward(const Tensor& gradient, bool retain) const {
  Tape& tape = *Tape::current();
  Backward(tape, retain).start("backward", {*this}, {gradient});
}

std::vector<Tensor> grad(const std::vector<Tensor>& ys, const std::vector<Tensor>& xs,
                         const GradOptions& options) {
  check<ValueError>(!ys.empty(), "grad", "there must be a tensor to begin with, got none");
  check<ValueError>(options.seeds.empty() || options.seeds.size() == ys.size(), "grad",
                    "there must be one seed for each y, got {} for {}", options.seeds.size(),
                    ys.size());
  Tape& tape = *Tape::current();
  for (const Tensor& x : xs) {
    check<AutogradError>(x.requires_grad(), "grad", "every x must require a gradient, got {}", x);
    check<AutogradError>(x.is_leaf() || x.impl().producer.tape.lock().get() == &tape, "grad",
                         "every x must be recorded on this thread's tape, got {}", x);
  }
  Backward backward(tape, xs, options.retain, options.create_graph);
  backward.start("grad", ys, options.seeds);
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < xs.size(); ++i) {
    gradients.push_back(backward.collected(xs[i]));
    check<AutogradError>(gradients.back().defined() || options.allow_unused, "grad",
                         "x {} must be reached from the ys, got {}; allow_unused = true leaves its "
                         "gradient undefined",
                         i, xs[i]);
    if (gradients.back().defined() && !options.create_graph)
      gradients.back().impl().from_gradient = true;
  }
  return gradients;
}

namespace {

HookHandle add_hook(const std::shared_ptr<GradHooks>& hooks, GradHook hook) {
  const int number = hooks->empty() ? 0 : hooks->rbegin()->first + 1;
  hooks->emplace(number, std::move(hook));
  return {hooks, number};
}

std::shared_ptr<GradHooks> made(std::shared_ptr<GradHooks>& hooks) {
  if (!hooks) hooks = std::make_shared<GradHooks>();
  return hooks;
}

}  // namespace

HookHandle Tensor::register_hook(GradHook hook) const {
  check<AutogradError>(requires_grad(), "register_hook",
                       "the tensor must require a gradient, got {}", *this);
  TensorImpl& impl = this->impl();
  if (impl.producer.index < 0) return add_hook(made(impl.hooks), std::move(hook));
  const auto tape = Tape::current();
  check<AutogradError>(impl.producer.tape.lock() == tape && tape->find(impl.producer.index),
                       "register_hook", "the tensor must be on this thread's tape, got {}", *this);
  return add_hook(tape->hooks(impl.producer.index, impl.producer.slot), std::move(hook));
}

HookHandle Tensor::register_post_accumulate_grad_hook(PostAccumulateGradHook hook) const {
  check<AutogradError>(requires_grad() && is_leaf(), "register_post_accumulate_grad_hook",
                       "the tensor must be a leaf that requires a gradient, got {}", *this);
  return add_hook(made(impl().post_accumulate_hooks),
                  [hook = std::move(hook), weak = std::weak_ptr(impl_)](const Tensor&) {
                    if (const auto leaf = weak.lock()) hook(Tensor(leaf));
                    return Tensor();
                  });
}

void Tensor::retain_grad() const {
  if (is_leaf()) return;
  register_hook([weak = std::weak_ptr<TensorImpl>(impl_)](const Tensor& gradient) {
    if (const auto impl = weak.lock()) impl->grad = gradient;
    return Tensor();
  });
}

}  // namespace rw

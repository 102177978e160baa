#include "core/autograd/backward.h"

#include <optional>

namespace rw {

namespace {

// Without this check, the derivative of a gradient would be left out silently.
void check_first_order(const char* op, const std::vector<Tensor>& roots) {
  for (const Tensor& root : roots)
    check<AutogradError>(
        !root.impl().from_gradient, op,
        "the tensor must not depend on a gradient that backward has made without its graph, got "
        "{}; make the gradient by grad() with create_graph = true to differentiate it (penalties "
        "on gradients, for example), or take its detach() where it is meant as a constant",
        root);
}

void check_root(Tape& tape, const char* op, const Tensor& root, const Tensor& gradient) {
  check<AutogradError>(root.requires_grad(), op,
                       "the tensor must depend on a leaf that requires a gradient, got {}", root);
  check<ShapeError>(gradient.defined() || root.numel() == 1, op,
                    "needs a scalar, or a gradient of its shape, got {}", root);
  check<ShapeError>(!gradient.defined() || gradient.shape() == root.shape(), op,
                    "the gradient must have the tensor's shape, got {} and {}", gradient, root);
  const Tensor both[] = {root, gradient};
  check_devices(op, std::span(both, gradient.defined() ? 2 : 1));
  const Producer& producer = root.impl().producer;
  if (producer.index < 0) return;
  check<AutogradError>(producer.tape.lock().get() == &tape, op,
                       "must run on the thread that recorded the tensor");
  check<AutogradError>(producer.index >= tape.begin(), op,
                       "the tape was freed by an earlier backward; call it with retain = true");
}

// Returns the gradients that a run backward begins with.
std::vector<Tensor> seeds_of(const std::vector<Tensor>& roots, const std::vector<Tensor>& given,
                             bool create_graph) {
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < roots.size(); ++i)
    seeds.push_back(
        i < given.size() && given[i].defined()
            ? (create_graph ? given[i] : given[i].detach())
            : full(roots[i].shape(), 1.0f, roots[i].dtype(), roots[i].device().shared_from_this()));
  return seeds;
}

// While it lives, ops are recorded on this thread, or they are not, whatever scope is around.
class GradMode {
 public:
  explicit GradMode(bool on) : change_(on ? -thread_state().no_grad : 1) {
    thread_state().no_grad += change_;
  }
  ~GradMode() { thread_state().no_grad -= change_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  const int change_;
};

// Extends the open segments, which backward has ended, by the records that it makes.
class SegmentExtender : public Tape::Observer {
 public:
  SegmentExtender(Tape& tape, Segments& segments) : tape_(tape), segments_(segments) {
    tape_.add_observer(*this);
  }
  ~SegmentExtender() override { tape_.remove_observer(*this); }
  SegmentExtender(const SegmentExtender&) = delete;
  SegmentExtender& operator=(const SegmentExtender&) = delete;

  void after_forward(int64_t index, const Record&, std::span<const Tensor>) override {
    segments_.end_open(index + 1);
  }

 private:
  Tape& tape_;
  Segments& segments_;
};

// While it lives, the tape has no follower: what backward records is part of no pass.
class WithoutFollower {
 public:
  explicit WithoutFollower(Tape& tape) : tape_(tape), follower_(tape.exchange_follower(nullptr)) {}
  ~WithoutFollower() { tape_.exchange_follower(follower_); }
  WithoutFollower(const WithoutFollower&) = delete;
  WithoutFollower& operator=(const WithoutFollower&) = delete;

 private:
  Tape& tape_;
  Tape::Follower* const follower_;
};

}  // namespace

void Backward::start(const char* op, const std::vector<Tensor>& roots,
                     const std::vector<Tensor>& gradients) {
  check_first_order(op, roots);
  tape_.take_foreign_releases();
  check<AutogradError>(!tape_.running_, op, "must not be called inside a vjp or a hook");
  if (tape_.follower())
    tape_.follower()->before_backward(tape_, roots.front(),
                                      gradients.empty() ? Tensor() : gradients.front(), retain_);
  for (size_t i = 0; i < roots.size(); ++i)
    check_root(tape_, op, roots[i], i < gradients.size() ? gradients[i] : Tensor());
  if (create_graph_) check_differentiable(roots);
  for (Tape::Observer* observer : tape_.observers()) observer->before_backward(roots.front());
  for (const auto& body : std::exchange(tape_.before_next_backward_, {})) body(roots.front());
  const GradMode recording(create_graph_);
  const WithoutFollower own_records(tape_);
  const PhaseScope phase(Phase::backward);
  // Gradients have the dtypes of what was recorded, whatever scope is open around backward.
  const NoAutocast no_autocast;
  tape_.running_ = true;
  const int64_t first = tape_.end();
  segments_.end_open(first);
  std::optional<SegmentExtender> extender;
  if (create_graph_) extender.emplace(tape_, segments_);
  try {
    run(roots, seeds_of(roots, gradients, create_graph_));
  } catch (...) {  // the run stopped halfway, so nothing of the tape can be trusted
    tape_.running_ = false;
    tape_.clear();
    throw;
  }
  segments_.end_open(-1);
  tape_.running_ = false;
  if (create_graph_) free_unread(first);
  tape_.forget_if_empty();
}

// Refuses ops on the way before anything runs, so that the tape stays as it is.
void Backward::check_differentiable(const std::vector<Tensor>& roots) {
  int64_t last = -1;
  for (const Tensor& root : roots) last = std::max(last, root.impl().producer.index);
  if (last < 0) return;
  mark(roots, last);
  for (int64_t i = records_.begin(); i <= last; ++i) {
    const Record& record = records_[i];
    check<AutogradError>(
        !record.reached || record.op->records_vjp || record.op->second, "grad",
        "create_graph: the gradient of '{}' cannot be differentiated; compose it of ops whose "
        "gradient can be (docs/from-pytorch.md lists those that cannot), detach() what it reads, "
        "or, for an op of your own whose vjp is written with public ops, set Op::records_vjp",
        record.op->name);
  }
}

// Makes a saved value stand for the one on the tape, for ops on it to be recorded.
void Backward::attach(Edge& edge, int64_t maker, int slot) {
  Tensor& value = edge.saved.tensor;
  if (!edge.requires_grad || !value.defined()) return;
  if (edge.leaf.defined()) {
    check<AutogradError>(edge.leaf.impl().storage == value.impl().storage, "grad",
                         "create_graph: a leaf must stay where it is between forward and backward, "
                         "{} has moved to other memory",
                         edge.leaf);
    value = edge.leaf;
    return;
  }
  value = value.detach();
  value.impl().requires_grad = true;
  value.impl().producer = {tape_.weak_from_this(), maker, slot};
  ++records_[maker].readers;
}

std::vector<Tensor> Backward::differentiable_vjp(int64_t index, Record& record,
                                                 std::span<Tensor> dy) {
  const Op& op = *record.op;
  std::vector<Saved> saved;
  each_saved(record, [&](const Edge& edge) { saved.push_back(edge.saved); });
  for (size_t k = 0; k < record.inputs.size(); ++k)
    if (record.saves.input(k))
      attach(record.inputs[k], record.inputs[k].record, record.inputs[k].slot);
  for (size_t k = 0; k < record.outputs.size(); ++k)
    if (record.saves.output(k)) attach(record.outputs[k], index, static_cast<int>(k));
  const bool depends =
      std::ranges::any_of(dy, [](const Tensor& t) { return t.defined() && t.requires_grad(); });
  std::vector<Tensor> dx = op.second ? recorded_vjp(record, dy) : op.vjp(record, dy);
  auto before = saved.begin();
  each_saved(record, [&](Edge& edge) { edge.saved = std::move(*before++); });
  for (size_t k = 0; k < dx.size() && k < record.inputs.size() && depends; ++k)
    check<AutogradError>(
        !record.needs_grad(static_cast<int>(k)) || !dx[k].defined() || dx[k].requires_grad(),
        op.name,
        "a vjp that is said to be recorded must make its gradients of dy by public ops, that of "
        "input {} depends on nothing",
        k);
  return dx;
}

void Backward::add_to_leaf(const Tensor& leaf, Tensor gradient) {
  TensorImpl& impl = leaf.impl();
  if (!impl.grad.defined()) impl.grad = impl.grad_place;
  if (impl.grad.defined()) {
    impl.grad.impl().from_gradient = true;
    if (gradient.pointer() != impl.grad.pointer()) accumulate(gradient, impl.grad);
    return;  // otherwise the vjp has already added to it
  }
  const PurposeScope purpose(Purpose::gradient);
  const Tensor& g = gradient;
  if (is_sole_owner(g) && g.dtype() == DType::f32) {
    impl.grad = std::move(gradient);
    impl.grad.device().set_purpose(*impl.grad.impl().storage, Purpose::gradient);
  } else {
    impl.grad = empty(g.shape(), DType::f32, g.device());
    copy_into(gradient, impl.grad);
  }
  impl.grad.impl().from_gradient = true;
}

Tensor Backward::hooked(const GradHooks& hooks, Tensor gradient) const {
  for (const auto& [number, hook] : GradHooks(hooks)) {  // a hook may remove itself
    if (!create_graph_) gradient.impl().from_gradient = true;
    Tensor other = hook(gradient);
    if (!other.defined()) continue;
    check<ShapeError>(other.shape() == gradient.shape(), "backward",
                      "a hook must return a gradient of the same shape, got {} for {}", other,
                      gradient);
    check_devices("backward", gradient, other);
    gradient = in_dtype(create_graph_ ? other : other.detach(), gradient.dtype());
  }
  return gradient;
}

void Backward::run(const std::vector<Tensor>& roots, std::vector<Tensor> gradients) {
  int64_t last = -1;
  for (const Tensor& root : roots) last = std::max(last, root.impl().producer.index);
  if (last >= 0) mark(roots, last);
  for (const Tensor& root : roots)
    if (root.is_leaf() && is_for_leaves_) leaf_sums_.try_emplace(&root.impl(), root);
  if (last >= 0) find_completions(last);
  for (size_t i = 0; i < roots.size(); ++i) {
    const Producer& producer = roots[i].impl().producer;
    if (producer.index < 0) {
      give_leaf(roots[i], std::move(gradients[i]));
    } else if (records_[producer.index].reached) {
      Tensor& sum = records_[producer.index].outputs[static_cast<size_t>(producer.slot)].gradient;
      sum =
          sum.defined() ? total(std::move(sum), std::move(gradients[i])) : std::move(gradients[i]);
    }
  }
  gradients.clear();
  if (last >= 0) loop(last);
  for (const Tensor& root : roots)  // a root that no record reads
    if (const auto leaf = leaf_sums_.find(&root.impl()); leaf != leaf_sums_.end())
      complete(leaf->second);
}

}  // namespace rw

// Gradients, hooks, and the scopes around code: no_grad, autocast, checkpoint segments.
#include <mutex>

#include "python/door/door.h"

namespace door {

namespace {

std::mutex dropped_mutex;
std::vector<PyObject*> dropped;

// A scope of C++ that Python opens and closes.
class Scope {
 public:
  template <class T>
  explicit Scope(std::shared_ptr<T> scope) : scope_(std::move(scope)) {}
  void close() { scope_.reset(); }

 private:
  std::shared_ptr<void> scope_;
};

// Sets whether ops are recorded, whatever scope is around.
class GradMode {
 public:
  explicit GradMode(bool on) : outer_(rw::thread_state().no_grad) {
    rw::thread_state().no_grad = on ? 0 : 1;
  }
  ~GradMode() { rw::thread_state().no_grad = outer_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  int outer_;
};

std::vector<rw::Tensor> tensors_in(nb::handle object) {
  if (const rw::Tensor* t = tensor_in(object)) return {*t};
  std::vector<rw::Tensor> tensors;
  for (nb::handle item : object)
    tensors.push_back(item.is_none() ? rw::Tensor() : *nb::cast<rw::Tensor*>(item));
  return tensors;
}

void bind_leaves(nb::class_<rw::Tensor>& tensor) {
  tensor.def_prop_rw("requires_grad", &rw::Tensor::requires_grad,
                     [](rw::Tensor& t, bool on) { t.set_requires_grad(on); });
  tensor.def(
      "requires_grad_",
      [](nb::object self, bool on) {
        tensor_in(self)->set_requires_grad(on);
        return self;
      },
      "requires_grad"_a = true);
  tensor.def_prop_ro("is_leaf", &rw::Tensor::is_leaf);
  tensor.def_prop_rw(
      "grad", [](const rw::Tensor& t) { return object_of(t.grad()); },
      [](rw::Tensor& t, Maybe gradient) { t.set_grad(std::move(gradient.tensor)); },
      nb::for_setter(nb::arg("gradient").none()), "The gradient (f32), or None.");
  tensor.def("detach", &rw::Tensor::detach, "The same values as a constant.");
  tensor.def_prop_ro("data", &rw::Tensor::detach);
  tensor.def("retain_grad", &rw::Tensor::retain_grad);
  tensor.def(
      "backward",
      [](const rw::Tensor& t, Maybe gradient, bool retain_graph) {
        drop_dropped();
        const nb::gil_scoped_release release;
        t.backward(gradient.tensor, retain_graph);
      },
      "gradient"_a.none() = nb::none(), "retain_graph"_a = false,
      "Runs the tape backward from this scalar, or with its gradient, and adds to grad of the "
      "leaves.");
  nb::class_<rw::HookHandle>(tensor, "HookHandle").def("remove", &rw::HookHandle::remove);
  tensor.def(
      "register_hook",
      [](const rw::Tensor& t, nb::object hook) {
        const auto function = std::make_shared<Reference>(hook);
        return t.register_hook([function](const rw::Tensor& gradient) -> rw::Tensor {
          const nb::gil_scoped_acquire acquire;
          const nb::object result = call_python(*function, gradient);
          return result.is_none() ? rw::Tensor() : *nb::cast<rw::Tensor*>(result);
        });
      },
      "hook"_a, "Calls hook(gradient) in every backward; what it returns replaces the gradient.");
  tensor.def(
      "register_post_accumulate_grad_hook",
      [](const rw::Tensor& t, nb::object hook) {
        const auto function = std::make_shared<Reference>(hook);
        return t.register_post_accumulate_grad_hook([function](const rw::Tensor& leaf) {
          const nb::gil_scoped_acquire acquire;
          call_python(*function, leaf);
        });
      },
      "hook"_a, "Calls hook(leaf) when its grad is complete.");
}

}  // namespace

void drop_later(PyObject* object) noexcept {
  if (!object || !Py_IsInitialized()) return;
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  {
    const std::lock_guard lock(dropped_mutex);
    dropped.push_back(object);
  }
  Py_AddPendingCall([](void*) { return drop_dropped(), 0; }, nullptr);
}

void drop_dropped() {
  std::vector<PyObject*> now;
  {
    const std::lock_guard lock(dropped_mutex);
    now.swap(dropped);
  }
  for (PyObject* object : now) Py_DECREF(object);
}

void bind_autograd(nb::module_& m, nb::class_<rw::Tensor>& tensor) {
  bind_leaves(tensor);
  m.def(
      "grad",
      [](nb::handle ys, nb::handle xs, nb::handle seeds, bool retain_graph, bool create_graph,
         bool allow_unused) {
        drop_dropped();
        rw::GradOptions options{
            .retain = retain_graph, .create_graph = create_graph, .allow_unused = allow_unused};
        if (!seeds.is_none()) options.seeds = tensors_in(seeds);
        const std::vector<rw::Tensor> outputs = tensors_in(ys), inputs = tensors_in(xs);
        std::vector<rw::Tensor> gradients;
        {
          const nb::gil_scoped_release release;
          gradients = rw::grad(outputs, inputs, options);
        }
        nb::list list;
        for (rw::Tensor& g : gradients) list.append(object_of(std::move(g)));
        return nb::tuple(list);
      },
      "ys"_a, "xs"_a, "seeds"_a.none() = nb::none(), "retain_graph"_a = false,
      "create_graph"_a = false, "allow_unused"_a = false,
      "The gradients of sum(seeds * ys) with respect to the xs, as torch.autograd.grad. With "
      "create_graph they can be differentiated.");
  m.def("is_grad_enabled", &rw::grad_enabled);

  nb::class_<rw::SavePolicy>(m, "SavePolicy", "Says which values checkpoint segments keep.");
  m.def("save_matmuls", &rw::save_matmuls,
        "Keeps the outputs of products, convolutions, attention and recurrent layers.");
  m.def("save_ops", &rw::save_ops, "names"_a,
        "Keeps the outputs of the ops of these names, and of checkpoint_name().");

  nb::class_<Scope>(m, "_Scope").def("close", &Scope::close, Release());
  m.def("_grad_mode", [](bool on) { return Scope(std::make_shared<GradMode>(on)); });
  m.def("_autocast", [](DTypeGiven dtype, bool enabled) {
    return Scope(std::make_shared<rw::Autocast>(dtype.dtype, enabled));
  });
  m.def(
      "_checkpoint",
      [](const rw::SavePolicy* policy) {
        return Scope(
            std::make_shared<rw::CheckpointScope>(true, policy ? *policy : rw::SavePolicy()));
      },
      "policy"_a.none());
  m.def("_block_checkpoints",
        [](bool on) { return Scope(std::make_shared<rw::BlockCheckpoints>(on)); });
  m.def("_host_boundaries",
        [](bool on) { return Scope(std::make_shared<rw::HostBoundaries>(on)); });
  m.def("_memory", [](const std::string& bytes) {
    ensure_device();
    return Scope(std::make_shared<rw::Memory>(bytes));
  });
  m.def("_generator_scope",
        [](uint64_t seed) { return Scope(std::make_shared<rw::GeneratorScope>(seed)); });
  bind_functions(m);
}

}  // namespace door

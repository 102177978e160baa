// rw.optim: what all optimizers can do, those around others, schedules, loss scales and averages.
#include <nanobind/stl/map.h>

#include "python/door/modules.h"

namespace door {

namespace {

nb::dict dict_of(const rw::Optimizer::NamedState& state) {
  nb::dict found;
  for (const auto& [name, tensor] : state) found[name.c_str()] = tensor;
  return found;
}

rw::Optimizer::NamedState state_of(nb::dict dict) {
  rw::Optimizer::NamedState state;
  for (const auto& [name, value] : dict)
    state.emplace_back(nb::cast<std::string>(name), as_tensor(value));
  return state;
}

void bind_schedule(nb::module_& m) {
  using S = rw::Schedule;
  nb::class_<S>(m, "Schedule", "A factor on the learning rate, of the number of updates done.")
      .def_static("constant", &S::constant, "warmup"_a = 0)
      .def_static("cosine", &S::cosine, "total"_a, "warmup"_a = 0, "floor"_a = 0)
      .def_static("linear", &S::linear, "total"_a, "warmup"_a = 0, "floor"_a = 0)
      .def_static("step", &S::step, "period"_a, "gamma"_a.sig("0.1") = 0.1, "warmup"_a = 0)
      .def_static("exponential", &S::exponential, "gamma"_a, "warmup"_a = 0)
      .def_static("multistep", &S::multistep, "milestones"_a, "gamma"_a.sig("0.1") = 0.1,
                  "warmup"_a = 0)
      .def_static("polynomial", &S::polynomial, "total"_a, "power"_a, "warmup"_a = 0, "floor"_a = 0)
      .def_static("restarts", &S::restarts, "period"_a, "growth"_a = 1, "warmup"_a = 0,
                  "floor"_a = 0)
      .def_static("noam", &S::noam, "model_size"_a, "warmup"_a)
      .def_static("one_cycle", &S::one_cycle, "total"_a, "pct_start"_a.sig("0.3") = 0.3,
                  "div_factor"_a = 25, "final_div_factor"_a = 1e4)
      .def("factor", &S::factor, "done"_a);
  using L = rw::LossScaler;
  nb::class_<L>(
      m, "LossScaler",
      "How gradients are kept in the range of f16: optimizer.set_scaler(LossScaler.dynamic()).")
      .def_static("none", &L::none)
      .def_static("fixed", &L::fixed, "scale"_a)
      .def_static("dynamic", &L::dynamic, "initial"_a = 65536, "growth"_a = 2,
                  "backoff"_a.sig("0.5") = 0.5, "interval"_a = 2000);
}

void bind_optimizer(nb::module_& m) {
  using O = rw::Optimizer;
  nb::class_<O>(m, "Optimizer", nb::dynamic_attr(), nb::is_weak_referenceable(),
                "Changes parameters by their gradients. A step is queued and never waited for.")
      .def(
          "backward", [](O& o, const rw::Tensor& loss, float weight) { o.backward(loss, weight); },
          "loss"_a, "weight"_a = 1, Release(),
          "loss.backward() with the loss scale; `weight` is that of a micro-batch.")
      .def("step", &O::step, Release(),
           "Queues an update; False if there was none (no gradient, or inside a window).")
      .def("flush", &O::flush, Release(),
           "Queues an update from the micro-batches of a window that is not full.")
      .def(
          "zero_grad", [](O& o, bool) { o.zero_grad(); }, "set_to_none"_a = true, Release(),
          "Gradients give their memory back.")
      .def_prop_rw("lr", &O::base_learning_rate, &O::set_learning_rate,
                   "The learning rate before groups and schedule.")
      .def("set_schedule", &O::set_schedule, "schedule"_a)
      .def("set_scaler", &O::set_scaler, "scaler"_a)
      .def("set_max_norm", &O::set_max_norm, "max_norm"_a,
           "Clips the norm of all gradients, on the device; 0: no clipping.")
      .def_prop_ro("position", &O::position)
      .def("updates", &O::updates, Release(),
           "Updates done. Waits for the device, as do the following.")
      .def("skipped", &O::skipped, Release())
      .def("loss_scale", &O::loss_scale, Release())
      .def(
          "grad_norm", [](const O& o) { return o.grad_norm(); }, Release())
      .def("learning_rate", &O::learning_rate, Release(), "Of the last update.")
      .def("diagnose", &O::diagnose, Release())
      .def(
          "state_dict", [](const O& o) { return dict_of(o.state()); },
          "The tensors that continue this optimizer, by name.")
      .def(
          "load_state_dict", [](O& o, nb::dict state) { o.load_state(state_of(state)); },
          "state_dict"_a);
  bind_listed_optimizers(m);

  nb::class_<rw::Muon, O>(m, "Muon").def(
      "__init__",
      [](rw::Muon* self, GroupsGiven matrices, GroupsGiven others, float lr, float weight_decay,
         float momentum, bool nesterov, float eps, int ns_steps, nb::dict adamw) {
        rw::AdamWOptions rest;
        for (const auto& [key, value] : adamw) {
          const std::string name = nb::cast<std::string>(key);
          const float number = nb::cast<float>(value);
          if (name == "lr")
            rest.lr = number;
          else if (name == "beta1")
            rest.beta1 = number;
          else if (name == "beta2")
            rest.beta2 = number;
          else if (name == "eps")
            rest.eps = number;
          else if (name == "weight_decay")
            rest.weight_decay = number;
          else
            rw::fail("Muon", "adamw has lr, beta1, beta2, eps and weight_decay, got '{}'", name);
        }
        new (self) rw::Muon(std::move(matrices).at(lr),
                            {.lr = lr,
                             .weight_decay = weight_decay,
                             .momentum = momentum,
                             .nesterov = nesterov,
                             .eps = eps,
                             .ns_steps = ns_steps},
                            std::move(others).at(rest.lr), rest);
      },
      "matrices"_a, "others"_a = nb::tuple(), "lr"_a.sig("0.001") = 1e-3,
      "weight_decay"_a.sig("0.1") = 0.1, "momentum"_a.sig("0.95") = 0.95, "nesterov"_a = true,
      "eps"_a.sig("1e-07") = 1e-7, "ns_steps"_a = 5, "adamw"_a = nb::dict(),
      "Matrices by orthogonalised momentum, other parameters by AdamW with the options `adamw`.");
}

void bind_around(nb::module_& m) {
  nb::class_<rw::Accumulate, rw::Optimizer>(
      m, "Accumulate",
      "Accumulate(Adam(parameters), n) updates at every n-th step() with the mean of n gradients.")
      .def(
          "__init__",
          [](rw::Accumulate* self, nb::handle optimizer, uint32_t n) {
            new (self) rw::Accumulate(take_optimizer(optimizer), n);
          },
          "optimizer"_a, "micro_batches"_a)
      .def("set_micro_batches", &rw::Accumulate::set_micro_batches, "micro_batches"_a)
      .def(
          "set_buffer",
          [](rw::Accumulate& a, DTypeGiven dtype, bool compensated) {
            a.set_buffer(dtype, compensated);
          },
          "dtype"_a, "compensated"_a = false)
      .def_prop_ro("micro_batches", &rw::Accumulate::micro_batches);
  nb::class_<rw::FusedBackward, rw::Optimizer>(
      m, "FusedBackward",
      "FusedBackward(AdamW(parameters)) updates each parameter inside backward(), when its "
      "gradient is complete.")
      .def(
          "__init__",
          [](rw::FusedBackward* self, nb::handle optimizer, bool two_passes) {
            new (self) rw::FusedBackward(take_optimizer(optimizer),
                                         two_passes ? rw::FusedPasses::two : rw::FusedPasses::one);
          },
          "optimizer"_a, "two_passes"_a = false);
  const nb::keep_alive<1, 2> keep;
  nb::class_<rw::ParameterAverage>(m, "ParameterAverage")
      .def("apply", &rw::ParameterAverage::apply, Release(),
           "Exchanges the parameters with their averages.")
      .def("restore", &rw::ParameterAverage::restore, Release())
      .def("__enter__",
           [](nb::object self) { return nb::cast<rw::ParameterAverage*>(self)->apply(), self; })
      .def("__exit__", [](rw::ParameterAverage& a, nb::args) { a.restore(); })
      .def("state_dict", [](const rw::ParameterAverage& a) { return dict_of(a.state()); })
      .def("load_state_dict",
           [](rw::ParameterAverage& a, nb::dict state) { a.load_state(state_of(state)); });
  nb::class_<rw::Ema, rw::ParameterAverage>(m, "Ema",
                                            "An exponential moving average of the parameters, "
                                            "which follows an optimizer; `with ema:` evaluates it.")
      .def(
          "__init__",
          [](rw::Ema* self, rw::Optimizer& o, float decay, bool bias_correction) {
            new (self) rw::Ema(o, {.decay = decay, .bias_correction = bias_correction});
          },
          "optimizer"_a, "decay"_a.sig("0.999") = 0.999, "bias_correction"_a = false, keep);
  nb::class_<rw::Swa, rw::ParameterAverage>(
      m, "Swa", "The mean of the parameters after every `every`-th update from now on.")
      .def(nb::init<rw::Optimizer&, uint32_t>(), "optimizer"_a, "every"_a = 1, keep);
  nb::class_<rw::Lookahead>(m, "Lookahead")
      .def(nb::init<rw::Optimizer&, uint32_t, float>(), "optimizer"_a, "every"_a = 5,
           "alpha"_a.sig("0.5") = 0.5, keep);
  nb::class_<rw::Plateau>(m, "Plateau", "PyTorch's ReduceLROnPlateau.")
      .def(
          "__init__",
          [](rw::Plateau* self, rw::Optimizer& o, bool maximize, double factor, uint32_t patience,
             double threshold, uint32_t cooldown, double min_lr) {
            new (self) rw::Plateau(o, {.maximize = maximize,
                                       .factor = factor,
                                       .patience = patience,
                                       .threshold = threshold,
                                       .cooldown = cooldown,
                                       .min_lr = min_lr});
          },
          "optimizer"_a, "maximize"_a = false, "factor"_a = 0.1, "patience"_a = 10,
          "threshold"_a = 1e-4, "cooldown"_a = 0, "min_lr"_a = 0., keep)
      .def("step", &rw::Plateau::step, "metric"_a);
  m.def(
      "grad_norm",
      [](const std::vector<Given>& parameters) {
        std::vector<rw::Tensor> tensors;
        for (const Given& p : parameters) tensors.push_back(p.tensor);
        return rw::grad_norm(tensors);
      },
      "parameters"_a, Release(), "The 2-norm of all gradients together.");
}

}  // namespace

rw::Optimizer&& take_optimizer(nb::handle object) {
  rw::Optimizer& optimizer = *nb::cast<rw::Optimizer*>(object);
  rw::check(
      !dynamic_cast<rw::Accumulate*>(&optimizer) && !dynamic_cast<rw::FusedBackward*>(&optimizer),
      "optimizer", "a plain optimizer is wanted, got one around another{}", "");
  nb::inst_set_state(object, false, true);  // it is destroyed as usual, and cannot be used
  return std::move(optimizer);
}

bool read_groups(nb::handle object, GroupsGiven& into) {
  rw::ParameterGroup plain;
  for (nb::handle item : object) {
    if (const rw::Tensor* t = tensor_in(item)) {
      plain.parameters.push_back(*t);
      continue;
    }
    if (!PyDict_Check(item.ptr())) return false;
    const nb::dict given = nb::borrow<nb::dict>(item);
    rw::ParameterGroup group;
    std::optional<float> rate;
    for (const auto& [key, value] : given) {
      const std::string name = nb::cast<std::string>(key);
      if (name == "params" || name == "parameters")
        for (nb::handle t : value) group.parameters.push_back(*nb::cast<rw::Tensor*>(t));
      else if (name == "lr")
        rate = nb::cast<float>(value);
      else if (name == "lr_scale")
        group.lr_scale = nb::cast<float>(value);
      else if (name == "weight_decay")
        group.weight_decay = nb::cast<float>(value);
      else
        return false;
    }
    into.groups.push_back(std::move(group));
    into.rates.push_back(rate);
  }
  if (!plain.parameters.empty() || into.groups.empty()) {
    into.groups.insert(into.groups.begin(), std::move(plain));
    into.rates.insert(into.rates.begin(), std::nullopt);
  }
  return true;
}

std::vector<rw::ParameterGroup> GroupsGiven::at(float lr) && {
  for (size_t i = 0; i < groups.size(); ++i)
    if (rates[i]) groups[i].lr_scale = *rates[i] / lr;
  return std::move(groups);
}

void bind_optimizers(nb::module_& m) {
  bind_schedule(m);
  bind_optimizer(m);
  bind_around(m);
}

}  // namespace door

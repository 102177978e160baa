// Dtypes, devices and random numbers.
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <mutex>
#include <pthread.h>

#include "python/door/door.h"

namespace door {

namespace {

std::mutex opening;
std::atomic<bool> is_open = false;
bool is_forked = false;  // this process is a copy of one that had a device

void note_open() {
  if (!is_open.exchange(true)) pthread_atfork(nullptr, nullptr, [] { is_forked = true; });
}

std::shared_ptr<rw::Device> device_or_default(const std::shared_ptr<rw::Device>& device) {
  ensure_device();
  return device ? device : rw::default_device();
}

}  // namespace

void check_process() {
  rw::check<rw::DeviceError>(!is_forked, "fork",
                             "a device belongs to the process that opened it, got a forked one; "
                             "start it with multiprocessing's method 'spawn'");
}

void ensure_device() {
  check_process();
  if (is_open) return;
  const std::lock_guard lock(opening);
  if (is_open) return;
  rw::set_default_device(rw::open_backend("auto"));
  note_open();
}

void bind_dtypes(nb::module_& m) {
  nb::enum_<rw::DType> dtype(m, "dtype",
                             "Element types; f16 and bf16 are storage, and sums are f32.");
  for (const rw::DType t :
       {rw::DType::f32, rw::DType::f16, rw::DType::bf16, rw::DType::i32, rw::DType::u8}) {
    const std::string name(rw::name(t));
    dtype.value(nb::str(name.c_str()).c_str(), t);
  }
  dtype.export_values();
  dtype.def_prop_ro("is_float", [](rw::DType t) { return rw::is_float(t); });
  dtype.def_prop_ro("is_floating_point", [](rw::DType t) { return rw::is_float(t); });
  dtype.def_prop_ro("itemsize", [](rw::DType t) { return rw::size_of(t); });
  dtype.def("__str__", [](rw::DType t) { return std::string(rw::name(t)); });
  dtype.def("__repr__", [](rw::DType t) { return "rewind." + std::string(rw::name(t)); });
  m.def(
      "promote_types",
      [](DTypeGiven a, DTypeGiven b) {
        const auto rank = [](rw::DType t) {
          return t == rw::DType::u8 ? 0 : t == rw::DType::i32 ? 1 : t == rw::DType::f32 ? 3 : 2;
        };
        if (rank(a) == 2 && rank(b) == 2 && a.dtype != b.dtype) return rw::DType::f32;
        return rank(a) >= rank(b) ? a.dtype : b.dtype;
      },
      "a"_a, "b"_a, "The dtype in which the two are computed together.");
}

void bind_devices(nb::module_& m) {
  nb::class_<rw::Device>(m, "Device", "A device, with its memory and the queue of its work.")
      .def("__str__", &rw::Device::str)
      .def("__repr__", [](const rw::Device& d) { return "<rewind.Device " + d.str() + ">"; })
      .def(
          "__eq__", [](const rw::Device& a, const rw::Device& b) { return &a == &b; },
          nb::is_operator())
      .def("__hash__", [](const rw::Device& d) { return reinterpret_cast<intptr_t>(&d) >> 4; })
      .def_prop_ro("type", [](const rw::Device& d) { return d.info().backend; })
      .def_prop_ro("name", [](const rw::Device& d) { return d.info().name; })
      .def("end_step", &rw::Device::end_step, Release(),
           "Ends a training step: its allocations are learnt. Optimizers do so by themselves.")
      .def("reset_peak", &rw::Device::reset_peak, Release())
      .def("synchronize", &rw::Device::synchronize, Release(), "Waits for all work.")
      .def("trim", &rw::Device::trim, Release(), "Gives free blocks back to the driver.")
      .def_prop_rw("memory_limit", &rw::Device::memory_limit, &rw::Device::set_memory_limit,
                   "The most bytes of blocks; 0 for no limit.");
  m.def(
      "set_default_device",
      [](const std::string& name, uint64_t memory_limit) {
        std::unique_ptr<rw::Backend> backend = rw::open_backend(name);
        note_open();
        return rw::set_default_device(std::move(backend), memory_limit);
      },
      "device"_a, "memory_limit"_a = 0, Release(),
      "Opens a device (\"auto\", \"cpu\", \"vulkan\", \"vulkan:1\", ...) on which tensors are made "
      "from now on.");
  m.def(
      "set_default_device", [](const std::shared_ptr<rw::Device>& d) { rw::set_default_device(d); },
      "device"_a);
  m.def(
      "default_device", [] { return device_or_default(nullptr); }, Release(),
      "The device on which tensors are made; \"auto\" is opened if none was set.");
  m.def(
      "synchronize", [] { device_or_default(nullptr)->synchronize(); }, Release(),
      "Waits for the default device.");

  nb::class_<rw::Generator>(m, "Generator",
                            "A stream of random numbers: a seed and the next counter.")
      .def(nb::init<uint64_t>(), "seed"_a = 0)
      .def(
          "manual_seed",
          [](rw::Generator& g, uint64_t seed) -> rw::Generator& { return g.seed(seed), g; },
          "seed"_a, nb::rv_policy::reference)
      .def_prop_ro("seed", [](const rw::Generator& g) { return g.seed(); })
      .def_prop_rw("position", &rw::Generator::position, &rw::Generator::set_position);
  m.def("manual_seed", &rw::manual_seed, "seed"_a, "Seeds the default generator.");
  m.def("default_generator", &rw::default_generator, nb::rv_policy::reference);
}

}  // namespace door

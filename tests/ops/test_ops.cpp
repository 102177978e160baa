// Every row of the op table: cpu and Vulkan compared with the reference, views, checkpoint
// segments, writes outside the outputs, leaks.
#include <fmt/format.h>

#include "backends/open.h"
#include "core/autograd/checkpoint.h"
#include "core/memory/default_device.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

// A backend of this machine, opened once (pipelines are compiled once), and two devices on it.
struct OpBench {
  std::string name;
  std::shared_ptr<Device> device;
  std::shared_ptr<Device> guarded;
  GuardBackend* guard = nullptr;

  explicit OpBench(const std::string& backend_name) : name(backend_name) {
    const std::shared_ptr<Backend> backend = open_backend(name);
    device = Device::create(std::make_unique<GuardBackend>(backend, false));
    auto watching = std::make_unique<GuardBackend>(backend, true);
    guard = watching.get();
    guarded = Device::create(std::move(watching), 1 << 19);
  }
};

OpBench& reference_bench() {
  static OpBench bench("reference");
  return bench;
}

OpBench& cpu_bench() {
  static OpBench bench("cpu");
  return bench;
}

// Null if the machine has no Vulkan device.
OpBench* vulkan_bench() {
  static std::unique_ptr<OpBench> bench = [] {
    try {
      return std::make_unique<OpBench>("vulkan");
    } catch (const DeviceError& e) {
      MESSAGE("skipped: " << std::string(e.what()));
      return std::unique_ptr<OpBench>();
    }
  }();
  return bench.get();
}

std::vector<OpBench*> benches() {
  std::vector<OpBench*> all = {&reference_bench(), &cpu_bench()};
  if (vulkan_bench()) all.push_back(vulkan_bench());
  return all;
}

// Runs `body` for every row with `device` as the default device; nothing may stay allocated.
template <class F>
void for_each_row(const std::shared_ptr<Device>& device, F&& body) {
  set_default_device(device);
  const uint64_t live = device->memory_report().live;
  for (const OpCase& row : op_cases()) {
    try {
      body(row);
    } catch (const Error& e) {
      FAIL_CHECK(row.name << ": " << std::string(e.what()));
    }
    CHECK_MESSAGE(device->memory_report().live == live, row.name << ": leaks memory");
    CHECK_MESSAGE(Tape::current()->stats().records == 0,
                  row.name << ": leaves records on the tape");
  }
}

Evaluated evaluate_row(const OpCase& row, DType dtype = DType::f32) {
  return evaluate(make_inputs(row, dtype), row.run);
}

double op_tolerance(const OpCase& row, DType dtype) {
  return dtype == DType::f16    ? row.roundings * 0x1p-11
         : dtype == DType::bf16 ? row.roundings * 0x1p-8
                                : row.f32_tolerance;
}

// ---- views: the same values at other places in a larger tensor
enum class ViewKind { shifted, transposed, every_second };

Tensor as_view(const Tensor& t, ViewKind kind) {
  const NoGrad guard;
  if (t.rank() == 0 || t.numel() == 0) return t;
  Tensor view;
  if (kind == ViewKind::shifted) {  // dense, from an odd element on
    const Tensor base = full({t.numel() + 4}, 9, t.dtype());
    view = make_view(base, t.shape(), t.strides(), 3);
  } else if (kind == ViewKind::transposed) {
    Shape reversed;
    Axes axes;
    for (int i = t.rank() - 1; i >= 0; --i) reversed.push_back(t.shape()[i]), axes.push_back(i);
    view = permute(full(reversed, 9, t.dtype()), axes);
  } else {
    Shape larger = t.shape();
    larger[t.rank() - 1] = 2 * t.shape()[t.rank() - 1] + 1;
    view = slice(full(larger, 9, t.dtype()), -1, 1, larger.at(-1), 2);
  }
  copy_into(t, view);
  return view.detach().set_requires_grad(t.requires_grad());
}

Tensors as_views(Tensors inputs, ViewKind kind) {
  for (Tensor& t : inputs) t = as_view(t, kind);
  return inputs;
}

// ---- a segment with neighbours before and after the op
Tensors with_neighbours(const OpCase& row, const Tensors& inputs, bool segment) {
  const CheckpointScope scope(segment);
  Tensors scaled;
  for (const Tensor& t : inputs) scaled.push_back(is_float(t.dtype()) ? t * 1.25f : t);
  Tensors outputs = row.run(scaled);
  for (Tensor& y : outputs)
    if (is_float(y.dtype())) y = square(std::move(y));
  return outputs;
}

void check_against_reference(OpBench& bench, DType dtype) {
  std::vector<Evaluated> expected;
  for_each_row(reference_bench().device,
               [&](const OpCase& row) { expected.push_back(evaluate_row(row, dtype)); });
  size_t next = 0;
  // Matrices take weights and gradients of scores as factors, rounded to 16 bits.
  const bool has_matrices =
      bench.device->info().has(dtype == DType::bf16 ? "bf16 matrices" : "cooperative matrices");
  const double by_matrices = is_half(dtype) && has_matrices ? 4 : 1;
  for_each_row(bench.device, [&](const OpCase& row) {
    const Evaluated& e = expected.at(next++);
    const double more = row.name.starts_with("attention") ? by_matrices : 1;
    check_close(evaluate_row(row, dtype), e, more * op_tolerance(row, dtype),
                fmt::format("{} in {} on {}", row.name, name(dtype), bench.name));
  });
}

}  // namespace

TEST_CASE("ops: vulkan against reference in f32") {
  if (vulkan_bench()) check_against_reference(*vulkan_bench(), DType::f32);
}
TEST_CASE("ops: vulkan against reference in f16") {
  if (vulkan_bench()) check_against_reference(*vulkan_bench(), DType::f16);
}
TEST_CASE("ops: vulkan against reference in bf16") {
  if (vulkan_bench()) check_against_reference(*vulkan_bench(), DType::bf16);
}
TEST_CASE("ops: cpu against reference" * doctest::test_suite("host")) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    check_against_reference(cpu_bench(), dtype);
}

TEST_CASE("ops: f16 and bf16 against f32 on reference" * doctest::test_suite("host")) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for_each_row(reference_bench().device, [&](const OpCase& row) {
      Tensors inputs = make_inputs(row, dtype);  // the same rounded values in f32
      for (Tensor& t : inputs)
        if (is_half(t.dtype()))
          t = cast(t.detach(), DType::f32).set_requires_grad(t.requires_grad());
      const Evaluated wide = evaluate(inputs, row.run);
      // Gradients are computed from rounded values, and from sums of these that cancel.
      const double bound = op_tolerance(row, dtype);
      check_close(evaluate_row(row, dtype), wide, bound,
                  fmt::format("{} in {}", row.name, name(dtype)), 6 * bound);
    });
}

TEST_CASE("ops: a gradient that is wanted alone has the same bits" * doctest::test_suite("host")) {
  for (OpBench* bench : {&reference_bench(), &cpu_bench()})
    for_each_row(bench->device, [&](const OpCase& row) {
      const Evaluated all = evaluate_row(row);
      for (size_t k = 0; k < row.inputs.size(); ++k) {
        if (!row.inputs[k].differentiable) continue;
        OpCase one = row;
        for (size_t i = 0; i < one.inputs.size(); ++i) one.inputs[i].differentiable = i == k;
        const Evaluated alone = evaluate_row(one);
        check_equal({alone.outputs, {alone.gradients[k]}}, {all.outputs, {all.gradients[k]}},
                    fmt::format("{} for input {} on {}", row.name, k, bench->name));
      }
    });
}

TEST_CASE("ops: views give the same values as dense tensors") {
  for (OpBench* bench : benches())
    for_each_row(bench->device, [&](const OpCase& row) {
      const Evaluated dense = evaluate_row(row);
      for (const ViewKind kind :
           {ViewKind::shifted, ViewKind::transposed, ViewKind::every_second}) {
        const std::string what = fmt::format("{} of views of kind {} on {}", row.name,
                                             static_cast<int>(kind), bench->name);
        const Evaluated viewed = evaluate(as_views(make_inputs(row), kind), row.run);
        // Drivers may contract wide and single loads' arithmetic differently.
        if (bench == &reference_bench())
          check_equal(viewed, dense, what);
        else
          check_close(viewed, dense, 3e-6, what);
      }
    });
}

TEST_CASE("ops: a checkpoint segment gives the same bits") {
  for (OpBench* bench : benches())
    for_each_row(bench->device, [&](const OpCase& row) {
      const auto plain = [&](const Tensors& in) { return with_neighbours(row, in, false); };
      const auto segment = [&](const Tensors& in) { return with_neighbours(row, in, true); };
      const Evaluated expected = evaluate(make_inputs(row), plain);
      check_equal(evaluate(make_inputs(row), segment), expected,
                  row.name + " in a segment on " + bench->name);
    });
}

TEST_CASE("ops: kernels write their outputs only and read nothing undefined") {
  for (OpBench* bench : benches()) {
    std::vector<Evaluated> expected;
    for_each_row(bench->device, [&](const OpCase& row) { expected.push_back(evaluate_row(row)); });
    size_t next = 0;
    for_each_row(bench->guarded, [&](const OpCase& row) {
      const Evaluated& e = expected.at(next++);
      // After every kernel, all memory is checked, so the row gets as little memory as it needs.
      uint64_t bytes =
          bench == &cpu_bench() ? 1 << 17 : 1 << 15;  // convolutions need more scratch there
      for (const Input& input : row.inputs) bytes += static_cast<uint64_t>(input.shape.numel()) * 4;
      bench->guarded->set_memory_limit(16 * bytes);
      bench->guarded->trim();  // fresh blocks of NaN for each row
      check_equal(evaluate_row(row), e, row.name + " in fresh memory on " + bench->name);
      const auto culprits = bench->guard->take_culprits();
      CHECK_MESSAGE(culprits.empty(), row.name << ": "
                                               << fmt::format("{}", fmt::join(culprits, ", "))
                                               << " wrote outside the outputs on " << bench->name);
    });
  }
}

// Half of 32 000 tokens are the same, and are summed in a tree of chunks. The summands are eighths,
// so every order of additions gives the same bits.
TEST_CASE("ops: the gradient of an embedding of many tokens") {
  const int64_t tokens = 32000, rows = 700;
  for (const int64_t width : {8, 13}) {
    std::vector<int32_t> index(tokens);
    std::vector<float> dy(tokens * width), expected(rows * width);
    for (int64_t i = 0; i < tokens; ++i) {
      index[i] = i % 2 == 0 ? 3 : static_cast<int32_t>(i * i % rows);
      for (int64_t c = 0; c < width; ++c) {
        dy[i * width + c] = static_cast<float>((i * 7 + c * 5) % 33 - 11) / 8;
        expected[index[i] * width + c] += dy[i * width + c];
      }
    }
    for (OpBench* bench : benches()) {
      CAPTURE(bench->name);
      set_default_device(bench->device);
      Tensor table = zeros({rows, width});
      table.set_requires_grad(true);
      const Tensor y = embedding(table, tensor(index, {tokens}));
      sum(y * tensor(dy, {tokens, width})).backward();
      CHECK(table.grad().to_vector() == expected);
    }
  }
}

TEST_CASE("ops: no two draws share random numbers" * doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("reference")));
  constexpr size_t n = 100;
  Generator generator(5), again(5);
  const auto uniform = [](int64_t count, Generator& from) {
    return rand({count}, 0, 1, DType::f32, from).to_vector();
  };
  const std::vector<float> first = uniform(n, generator);
  const std::vector<float> dropped = dropout(ones({n}), 0.5f, generator).to_vector();
  const std::vector<float> last = uniform(n, generator), all = uniform(3 * n, again);
  for (size_t i = 0; i < n; ++i) {
    CHECK(first[i] == all[i]);
    CHECK((dropped[i] != 0) == (all[n + i] < 0.5f));
    CHECK(last[i] == all[2 * n + i]);
  }
}

TEST_CASE("ops: rand and randn have the asked moments and follow the generator") {
  for (OpBench* bench : benches()) {
    set_default_device(bench->device);
    constexpr int64_t n = 40000;
    const auto moments = [](const Tensor& t) {
      double sum = 0, squares = 0;
      for (const float v : t.to_vector()) sum += v, squares += double{v} * v;
      return std::pair{sum / n, squares / n - sum * sum / n / n};
    };
    manual_seed(3);
    const Tensor uniform = rand({n}, -1, 3), normal = randn({n}, 1, 2);
    const auto [mean, variance] = moments(uniform);
    CHECK(mean == doctest::Approx(1).epsilon(0.02));
    CHECK(variance == doctest::Approx(16.0 / 12).epsilon(0.03));
    const auto [normal_mean, normal_variance] = moments(normal);
    CHECK(normal_mean == doctest::Approx(1).epsilon(0.04));
    CHECK(normal_variance == doctest::Approx(4).epsilon(0.04));
    for (const float v : uniform.to_vector()) REQUIRE((v >= -1 && v < 3));
    manual_seed(3);
    CHECK(rand({n}, -1, 3).to_vector() == uniform.to_vector());
    CHECK(rand({n}, -1, 3).to_vector() != uniform.to_vector());

    const std::vector<float> dropped = dropout(ones({n}), 0.3f).to_vector();
    const auto kept = std::count_if(dropped.begin(), dropped.end(), [](float v) { return v != 0; });
    CHECK(static_cast<double>(kept) / n == doctest::Approx(0.7).epsilon(0.02));
  }
}

}  // namespace rw::test

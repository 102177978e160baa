// Every public function that writes into a tensor counts as a write: a gradient that would read an
// overwritten value is an error that names the tensor.
#include <fstream>

#include "core/tensor/launch.h"
#include "io/formats/npy.h"
#include "io/formats/transfer.h"
#include "io/models/model.h"
#include "io/snapshot/snapshot.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/sgd.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

const Shape shape = {4, 4};

struct OneWeight : Module {
  Tensor w = register_parameter("w", shape);
  OneWeight() {
    init::constant_(w, 0.5f);
    named_parameters();  // names it
  }
};

// The objects that a writer may use; it writes `model.w`.
struct WriteBench {
  OneWeight model;
  TemporaryFolder folder;
  std::vector<std::shared_ptr<Optimizer>> optimizers;
  std::shared_ptr<Ema> ema;
  Tensor w() { return model.w; }

  template <class O, class... A>
  Optimizer& make(A... options) {
    optimizers.push_back(std::make_shared<O>(model.parameters(), options...));
    return *optimizers.back();
  }
};

using Action = std::function<void()>;
struct Writer {
  const char* name;
  // Runs before the forward; the action that it returns writes.
  std::function<Action(WriteBench&)> prepare;
};

// A file of 128 bytes, all of them 0.
const InputFile& zero_file() {
  static const TemporaryFolder folder;
  static const InputFile file = [] {
    std::ofstream(folder.path / "zeros", std::ios::binary) << std::string(128, '\0');
    return InputFile(folder.path / "zeros");
  }();
  return file;
}

// Makes a writer that needs no preparation.
template <class F>
Writer direct(const char* name, F&& write) {
  return {name, [write](WriteBench& b) -> Action { return [&b, write] { write(b.w()); }; }};
}

template <class O>
Writer update(const char* name) {
  return {name, [](WriteBench& b) -> Action {
            Optimizer& optimizer = b.make<O>();
            optimizer.backward(sum(square(b.w())));
            return [&] { optimizer.step(); };
          }};
}

std::vector<Writer> writers() {
  std::vector<Writer> all = {
      direct("fill_", [](Tensor w) { fill_(w, 100); }),
      direct("fill_ of a part", [](Tensor w) { fill_(slice(w, 0, 1, 2), 100); }),
      direct("copy_into", [](Tensor w) { copy_into(ones(shape), w); }),
      direct("copy_into a strided part",
             [](Tensor w) {
               copy_into(ones({4, 2}), slice(w, 1, 0, 4, 2));
             }),
      direct("accumulate", [](Tensor w) { accumulate(ones(shape), w); }),
      direct("copy_", [](Tensor w) { w.copy_(ones(shape)); }),
      direct("copy_from f32", [](Tensor w) { w.copy_from(std::vector<float>(16)); }),
      direct("copy_from i32", [](Tensor w) { w.copy_from(std::vector<int32_t>(16)); }),
      direct("copy_from u8", [](Tensor w) { w.copy_from(std::vector<uint8_t>(16)); }),
      direct("write_elements",
             [](Tensor w) {
               const float x = 3;
               write_elements(w, 5, 1, &x);
             }),
      direct("zeros_", [](Tensor w) { init::zeros_(w); }),
      direct("ones_", [](Tensor w) { init::ones_(w); }),
      direct("constant_", [](Tensor w) { init::constant_(w, 3); }),
      direct("uniform_", [](Tensor w) { init::uniform_(w, 0, 1); }),
      direct("normal_", [](Tensor w) { init::normal_(w, 0, 1); }),
      direct("kaiming_uniform_", [](Tensor w) { init::kaiming_uniform_(w); }),
      direct("kaiming_normal_", [](Tensor w) { init::kaiming_normal_(w); }),
      direct("xavier_uniform_", [](Tensor w) { init::xavier_uniform_(w); }),
      direct("xavier_normal_", [](Tensor w) { init::xavier_normal_(w); }),
      direct("upload",
             [](Tensor w) {
               upload("F32", {zero_file(), 0, 16 * sizeof(float)}, w, "w");
             }),
      direct(
          "upload of another dtype",
          [](Tensor w) {
            upload("F64", {zero_file(), 0, 16 * sizeof(double)}, transpose(w.detach(), 0, 1), "w");
          }),
      update<SGD>("SGD"),
      update<Adam>("Adam"),
      update<AdamW>("AdamW"),
      update<Lamb>("Lamb"),
  };
  all.push_back({"Accumulate", [](WriteBench& b) -> Action {
                   auto both = std::make_shared<Accumulate>(SGD(b.model.parameters()), 1);
                   b.optimizers.push_back(both);
                   return [both, &b] {
                     both->backward(sum(square(b.w())));
                     both->step();
                   };
                 }});
  for (const bool restores : {false, true})
    all.push_back({restores ? "Ema::restore" : "Ema::apply", [restores](WriteBench& b) -> Action {
                     b.ema = std::make_shared<Ema>(b.make<SGD>());
                     if (restores) b.ema->apply();
                     return [&b, restores] { restores ? b.ema->restore() : b.ema->apply(); };
                   }});
  all.push_back({"load_model", [](WriteBench& b) -> Action {
                   save_model(b.folder.path / "m", b.model);
                   return [&b] { load_model(b.folder.path / "m", b.model); };
                 }});
  all.push_back({"load_tensors", [](WriteBench& b) -> Action {
                   write_safetensors(b.folder.path / "m", state_dict(b.model));
                   return [&b] {
                     load_tensors(SafetensorsFile(b.folder.path / "m"), state_dict(b.model));
                   };
                 }});
  all.push_back({"SafetensorsFile::read", [](WriteBench& b) -> Action {
                   write_safetensors(b.folder.path / "m", state_dict(b.model));
                   return [&b] { SafetensorsFile(b.folder.path / "m").read("w", b.w()); };
                 }});
  all.push_back({"load_snapshot", [](WriteBench& b) -> Action {
                   Optimizer& optimizer = b.make<SGD>();
                   save_snapshot(b.folder.path / "c", {b.model, optimizer}, {});
                   return [&] { load_snapshot(b.folder.path / "c", {b.model, optimizer}); };
                 }});
  return all;
}

// Returns the message of the backward of a loss whose gradient reads w after `write`.
std::string after_write(const Tensor& w, bool in_segment, const Action& write) {
  Tensor x = full(shape, 2).set_requires_grad();
  Tensor loss;
  {
    const CheckpointScope segment(in_segment);
    loss = sum(tanh(linear(x, w)));
  }
  write();
  const std::string message = message_of<AutogradError>([&] { loss.backward(); });
  CHECK_FALSE(x.grad().defined());
  return message;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice,
                  "writes: whoever writes into a value that a gradient reads is found out" *
                      doctest::test_suite("host")) {
  for (const Writer& writer : writers())
    for (const bool in_segment : {false, true}) {
      CAPTURE(writer.name);
      CAPTURE(in_segment);
      WriteBench bench;
      const Action write = writer.prepare(bench);
      const std::string message = after_write(bench.w(), in_segment, write);
      CHECK(contains(message, "'w'"));
      CHECK(contains(message, "was written to"));
      CHECK(contains(message, "(4, 4)"));
    }
}

TEST_CASE_FIXTURE(CpuDevice, "writes: what only reads is no write" * doctest::test_suite("host")) {
  WriteBench bench;
  Optimizer& optimizer = bench.make<SGD>();
  Tensor x = full(shape, 2).set_requires_grad();
  const Tensor loss = sum(tanh(linear(x, bench.w())));
  save_model(bench.folder.path / "m", bench.model);
  save_snapshot(bench.folder.path / "c", {bench.model, optimizer}, {});
  save_npy(bench.folder.path / "n", bench.w());
  optimizer.zero_grad();
  bench.w().to_vector();
  { const auto copy = bench.w() * 2.0f; }
  loss.backward();
  CHECK(x.grad().to_vector()[0] != 0);
}

TEST_CASE_FIXTURE(CpuDevice, "writes: running statistics" * doctest::test_suite("host")) {
  BatchNorm2d norm(3);
  norm.named_buffers();
  const Tensor x = full({2, 1, 1, 3}, 2).set_requires_grad();
  for (const bool in_segment : {false, true}) {
    CAPTURE(in_segment);
    norm.train(false);
    Tensor loss;
    {
      const CheckpointScope segment(in_segment);
      loss = sum(square(norm(x)));
    }
    norm.train(true);
    norm(x.detach());
    CHECK(contains(message_of<AutogradError>([&] { loss.backward(); }), "'running_"));
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "writes: states of optimizers and averages" * doctest::test_suite("host")) {
  WriteBench bench;
  Optimizer& adam = bench.make<Adam>();
  Ema ema(adam);
  const auto check_state = [](const Optimizer::NamedState& state, const Action& load) {
    const Tensor t = state.back().second;  // of the shape of w
    CHECK(contains(after_write(t, false, load), "was written to"));
    CHECK(contains(after_write(t, true, load), "was written to"));
  };
  const auto copy = [](const Optimizer::NamedState& state) {
    Optimizer::NamedState copies;
    for (const auto& [name, t] : state) {
      copies.emplace_back(name, empty(t.shape(), t.dtype()));
      copies.back().second.copy_(t);
    }
    return copies;
  };
  const auto saved = copy(adam.state()), averages = copy(ema.state());
  check_state(adam.state(), [&] { adam.load_state(saved); });
  const auto step = [&] {
    adam.backward(sum(square(bench.w())));
    adam.step();
  };
  check_state(adam.state(), step);
  check_state(ema.state(), [&] { ema.load_state(averages); });
  check_state(ema.state(), step);
}

TEST_CASE_FIXTURE(CpuDevice, "writes: gradients" * doctest::test_suite("host")) {
  Tensor w = leaf(4, "w");
  sum(square(w)).backward();
  Tensor x = leaf(4, "x");
  for (const int how : {0, 1}) {
    const Tensor loss = sum(x * w.grad().detach());
    if (how == 0)
      sum(square(w)).backward();
    else
      fill_(w.grad(), 0);
    CHECK_THROWS_AS(loss.backward(), AutogradError);
  }
}

}  // namespace rw::test

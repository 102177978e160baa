// Your own model, if it does not fit: the memory that it needs, the largest batch that fits, and
// training within a budget. Usage: memory_budget [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

class Net : public rw::Module {
 public:
  Net() {
    register_module("layers", layers_);
    layers_.emplace<rw::Linear>(256, 256);
    for (int i = 0; i < 12; ++i) {
      layers_.emplace<rw::ReLU>();
      layers_.emplace<rw::Linear>(256, 256);
    }
  }
  rw::Tensor forward(rw::Tensor x) override { return layers_(std::move(x)); }

 private:
  rw::Sequential layers_;
};

void train_on(Net& net, rw::Optimizer& optimizer, const rw::StepSettings& settings, rw::Tensor x) {
  const rw::Autocast half(settings.dtype, settings.dtype == rw::DType::f16);
  optimizer.backward(rw::mean(rw::square(net(std::move(x)))));
  optimizer.step();
  optimizer.zero_grad();
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  // The planner needs to know how to build the program for given settings, and how it takes a step.
  // Nothing of this runs on the device: tensors made here have shapes, and no memory.
  const rw::MakeSteps make = rw::training_steps([](const rw::StepSettings& settings) {
    auto net = std::make_shared<Net>();
    auto adam = std::make_shared<rw::Adam>(net->parameters());
    return [=] { train_on(*net, *adam, settings, rw::empty({settings.batch, 256})); };
  });
  const rw::Planner planner({.make = make, .settings = {.batch = 4096}});
  const uint64_t plain = planner.forecast().memory.peak, budget = plain / 2;
  std::printf("%s\n", planner.forecast().str().c_str());
  std::printf("%s\n", rw::savings_table(rw::attribute_savings(planner)).c_str());
  std::printf("%s\n", rw::fit_table(rw::fit(planner, budget), budget).c_str());

  // Trains within half of what it needs; first it finds the cheapest recomputation for that.
  rw::PlannedRun run({.make = make, .settings = {.batch = 4096}},
                     rw::AutoRecomputeOptions{.budget = budget});
  run.guard([&] {  // an OutOfMemory would end with what to do, each remedy tried in a dry run
    Net net;
    rw::Adam adam(net.parameters());
    for (int step = 0; step < 3; ++step)
      train_on(net, adam, run.settings(), rw::randn({run.settings().batch, 256}));
    run.after_steps();
  });
  const rw::RunAccount account = run.account();
  std::printf("%s", account.str().c_str());
  return account.memory.peak <= budget ? 0 : 1;
}

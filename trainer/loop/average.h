// An average of the weights on the command line, evaluated beside them.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>

#include "../../nn/module.h"
#include "../../optim/ema.h"
#include "../program/waiting.h"
#include "meter.h"
#include "model_steps.h"

namespace CLI {
class App;
}

namespace rw {

// --ema.
struct AverageOptions {
  double decay = 0;  // 0: no average

  void add_to(CLI::App& app);  // the option
  void check_numbers() const;  // ValueError
  // Null: none is wanted. It weighs as if there had been nothing before the first update, so that
  // short runs have an average of what they learnt.
  std::unique_ptr<Ema> follow(Optimizer& optimizer) const;
};

// body() with the averages in the parameters' place. Where it throws they stay there: the program
// ends.
template <class Body>
void at_average(Ema& average, const Body& body) {
  average.apply();
  body();
  average.restore();
}

// The evaluation of the weights, and of their average if there is one.
struct Evaluation {
  Meter::Values weights;
  std::optional<Meter::Values> average;

  // print(whose, values) for both; `whose` is a part of the line.
  template <class Print>
  void print(const Print& print) const {
    print("", weights);
    if (average) print("of the average ", *average);
  }
  // "accuracy", "loss" and "ema_accuracy", "ema_loss", the first part of the names being `prefix`.
  nlohmann::json json(const std::string& prefix) const;
};

// By evaluate_all(), in evaluation mode. The steps have an `average`, which may be null. The
// averages are shown with the running statistics that batch norms have, which are the weights'.
template <class Steps, class MakeLoader>
Evaluation evaluate_both(Steps& steps, const MakeLoader& loader) {
  const Waiting waiting("evaluating");
  const WholeParameters whole(steps.parallel.get());
  Evaluation evaluation{evaluate_all(steps, loader()), {}};
  if (steps.average)
    at_average(*steps.average, [&] { evaluation.average = evaluate_all(steps, loader()); });
  return evaluation;
}

// The dry run of that: `evaluate` twice.
template <class Evaluate>
void dry_evaluate_both(Module& model, DataParallel* parallel, Ema* average,
                       const Evaluate& evaluate) {
  const WholeParameters whole(parallel);
  model.eval();
  evaluate();
  if (average) at_average(*average, evaluate);
}

// Where weights are saved: to `path`, their average to another file beside it: model.safetensors ->
// model.ema.safetensors.
std::string weights_path(const std::string& path, bool is_average);

}  // namespace rw

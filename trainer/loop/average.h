// An average of the weights as an option, evaluated beside the weights themselves.
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

// The option --ema.
struct AverageOptions {
  double decay = 0;  // 0: there is no average

  void add_to(CLI::App& app);  // adds the option
  void check_numbers() const;  // throws ValueError
  // Returns the average, or null if none is wanted. It has no weight before the first update, so
  // that short runs, too, have an average of what they learnt.
  std::unique_ptr<Ema> follow(Optimizer& optimizer) const;
};

// Runs body() while the parameters have the averages' values. If it throws, they keep them, since
// the program ends.
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

  // Calls print(whose, values) for both; `whose` is a part of the line.
  template <class Print>
  void print(const Print& print) const {
    print("", weights);
    if (average) print("of the average ", *average);
  }
  // Returns "accuracy", "loss", "ema_accuracy" and "ema_loss", with `prefix` before each name.
  nlohmann::json json(const std::string& prefix) const;
};

// Evaluates both by evaluate_all(), in evaluation mode. The steps have an `average`, which may be
// null. The averages are evaluated with the running statistics of batch norms, which belong to the
// weights.
template <class Steps, class MakeLoader>
Evaluation evaluate_both(Steps& steps, const MakeLoader& loader) {
  const auto waiting = show_waiting("evaluating");
  const auto whole = gather_parameters(steps.parallel.get());
  Evaluation evaluation{evaluate_all(steps, loader()), {}};
  if (steps.average)
    at_average(*steps.average, [&] { evaluation.average = evaluate_all(steps, loader()); });
  return evaluation;
}

// The same in a dry run, which calls `evaluate` twice.
template <class Evaluate>
void dry_evaluate_both(Module& model, DataParallel* parallel, Ema* average,
                       const Evaluate& evaluate) {
  const auto whole = gather_parameters(parallel);
  model.eval();
  evaluate();
  if (average) at_average(*average, evaluate);
}

// Returns the file for weights: `path`, or for their average another file beside it:
// model.safetensors -> model.ema.safetensors.
std::string weights_path(const std::string& path, bool is_average);

}  // namespace rw

#include "optim/schedules/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "optim/schedules/learning_rate.h"

namespace rw {

namespace {

using WorkKind = TrainingWork::Kind;
constexpr auto by_root = LearningRateRule::square_root, in_proportion = LearningRateRule::linear;
constexpr auto by_cosine = Schedule::Kind::cosine, by_line = Schedule::Kind::linear;

// A recipe that is known to work for a kind of model.
struct KnownRecipe {
  WorkKind kind;
  bool is_loaded;
  const char* models;           // in words
  float lr, least;              // of models of up to `parameters`, and of the largest ones
  double parameters, exponent;  // the rate falls as (parameters / size)^exponent
  int64_t batch;                // samples per update that it is for
  LearningRateRule rule;        // how it follows the batch
  Schedule::Kind decay;
  float warmup, floor, max_norm;
  int64_t passes, updates;  // passes over the data, or more until there are so many updates of it
};

// The rates of new language models go through those of GPT-3's table (Brown et al. 2020: 6e-4 for
// 125 million parameters, 2e-4 for 1.3 billion), those of BERT through 1e-4 for 110 million (Devlin
// et al. 2019), and 3e-5 to fine-tune it; small ones take more (Turc et al. 2019), and few samples
// more passes (Mosbach et al. 2021). Adapters of large language models take 2e-4 (Dettmers et al.
// 2023, "QLoRA"). Images are learnt as by He et al. 2016.
constexpr KnownRecipe known_recipes[] = {
    {WorkKind::language, false, "new language models", 3e-3f, 1e-5f, 2.5e6, 0.4, 8, by_root,
     by_cosine, 0.1f, 0, 1, 1, 0},
    {WorkKind::language, true, "language models that are fine-tuned whole", 1e-4f, 2e-5f, 2.5e6,
     0.5, 8, by_root, by_cosine, 0.05f, 0.1f, 1, 1, 0},
    {WorkKind::adapters, true, "adapters of language models", 2e-3f, 2e-4f, 2.5e6, 0.5, 8, by_root,
     by_cosine, 0.03f, 0, 1, 1, 100},
    {WorkKind::masked_language, false, "new models of masked tokens", 2e-3f, 1e-5f, 1e6, 0.6, 32,
     by_root, by_line, 0.1f, 0, 1, 1, 0},
    {WorkKind::masked_language, true, "trained models of masked tokens", 2e-4f, 1e-5f, 1e6, 0.6, 32,
     by_root, by_line, 0.1f, 0, 1, 1, 0},
    {WorkKind::text_classes, false, "new classifiers of texts", 1e-3f, 2e-5f, 1e6, 0.6, 32, by_root,
     by_line, 0.1f, 0, 1, 10, 100},
    {WorkKind::text_classes, true, "trained models that learn to classify texts", 5e-4f, 1e-5f, 1e6,
     0.6, 32, by_root, by_line, 0.1f, 0, 1, 3, 100},
    {WorkKind::speech, false, "new recognisers of speech", 1e-2f, 1e-4f, 2e5, 0.4, 8, by_root,
     by_cosine, 0.1f, 0, 1, 20, 0},
    {WorkKind::speech, true, "trained recognisers of speech", 1e-3f, 1e-5f, 2e5, 0.4, 8, by_root,
     by_cosine, 0.1f, 0, 1, 20, 0},
    {WorkKind::images, false, "new classifiers of images", 0.1f, 0, 0, 0, 128, in_proportion,
     by_cosine, 0.1f, 0, 0, 30, 80},
    {WorkKind::images, true, "trained classifiers of images", 0.01f, 0, 0, 0, 128, in_proportion,
     by_cosine, 0.1f, 0, 0, 30, 25},
};

const KnownRecipe& known_for(const TrainingWork& work) {
  const auto* const found = std::ranges::find_if(known_recipes, [&](const KnownRecipe& row) {
    return row.kind == work.kind && row.is_loaded == work.is_loaded;
  });
  check(found != std::end(known_recipes), "recipe",
        "the kind of work must be one of those of TrainingWork, got {}",
        static_cast<int>(work.kind));
  return *found;
}

// The rate of a model of this size, for the batch of the row.
float rate_by_size(const KnownRecipe& known, int64_t parameters) {
  const auto size = static_cast<double>(parameters);
  if (size <= known.parameters || known.exponent == 0) return known.lr;
  const double share = std::pow(known.parameters / size, known.exponent);
  return std::max(known.least, static_cast<float>(known.lr * share));
}

// Few samples are seen more often, but texts no more than 20 times. Images are cropped and mirrored
// otherwise in each pass, and where the rate is in proportion to the batch, so many of them make
// the same progress in batches of any size.
int64_t passes_over(const KnownRecipe& known, const TrainingWork& work) {
  if (work.samples == 0 || known.updates == 0) return known.passes;
  const auto divided_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (known.rule == in_proportion)
    return std::max(known.passes, divided_up(known.updates * known.batch, work.samples));
  constexpr int64_t most = 20;
  const int64_t enough = divided_up(known.updates, divided_up(work.samples, work.batch));
  return std::max(known.passes, std::min(most, enough));
}

}  // namespace

Schedule TrainingRecipe::schedule(uint32_t updates) const {
  const double share = double{warmup} * updates;
  const auto wanted = static_cast<uint32_t>(std::ceil(share - 1e-6 * updates));  // of a float
  const uint32_t rising = updates == 0 ? 0 : std::min(wanted, updates - 1);
  return decay == Schedule::Kind::linear ? Schedule::linear(updates, rising, floor)
                                         : Schedule::cosine(updates, rising, floor);
}

std::string TrainingRecipe::schedule_text() const {
  std::string text = fmt::format("warm-up over {:g} % of the updates, then {} to {}", 100 * warmup,
                                 decay == Schedule::Kind::linear ? "linearly" : "along a cosine",
                                 floor > 0 ? fmt::format("{:g} of it", floor) : "0");
  if (max_norm > 0) text += fmt::format(", gradients clipped to a norm of {:g}", max_norm);
  return text;
}

TrainingRecipe recipe(const TrainingWork& work) {
  check(work.batch > 0 && work.parameters >= 0 && work.samples >= 0, "recipe",
        "the batch must be positive and the counts not negative, got {} with {} parameters and {} "
        "samples",
        work.batch, work.parameters, work.samples);
  const KnownRecipe& known = known_for(work);
  const float base = rate_by_size(known, work.parameters);
  // Beyond some batch a larger one makes better updates, not longer ones (scale_lr()). The few
  // updates that SGD has left then do not recover from a rate that is more than that known one.
  const int64_t furthest = known.rule == in_proportion ? 1 : 4;
  const int64_t batch = std::min(work.batch, furthest * known.batch);
  TrainingRecipe made = {.lr = scale_lr(base, batch, known.batch, known.rule),
                         .decay = known.decay,
                         .warmup = known.warmup,
                         .floor = known.floor,
                         .max_norm = known.max_norm,
                         .passes = passes_over(known, work)};
  made.reason = fmt::format("that of {}{}: {:.3g} for {} samples per update, {}", known.models,
                            known.exponent > 0 ? ", of this size" : "", base, known.batch,
                            known.rule == in_proportion ? "and less in proportion for fewer"
                                                        : "and by the root for others");
  if (made.passes > known.passes)
    made.reason += fmt::format("; {} passes, since {} samples are few", made.passes, work.samples);
  return made;
}

}  // namespace rw

#include "optim/base/loss_scaler.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/base/error.h"

namespace rw {

LossScaler LossScaler::none() {
  return {};
}

LossScaler LossScaler::fixed(float scale) {
  LossScaler scaler;
  scaler.initial = scale;
  scaler.validate();
  return scaler;
}

LossScaler LossScaler::dynamic(float initial, float growth, float backoff, uint32_t interval) {
  LossScaler scaler{.is_dynamic = true,
                    .initial = initial,
                    .growth = growth,
                    .backoff = backoff,
                    .interval = interval};
  scaler.validate();
  return scaler;
}

LossScaler LossScaler::tensorflow(float init_loss_scale, uint32_t incr_every_n_steps,
                                  uint32_t decr_every_n_nan_or_inf, float incr_ratio,
                                  float decr_ratio) {
  LossScaler scaler{.is_dynamic = true,
                    .initial = init_loss_scale,
                    .growth = incr_ratio,
                    .backoff = decr_ratio,
                    .interval = incr_every_n_steps,
                    .hysteresis = decr_every_n_nan_or_inf,
                    .keep_bad = true};
  scaler.validate();
  return scaler;
}

void LossScaler::validate() const {
  check(std::isfinite(initial) && initial > 0, "loss_scaler", "the scale must be positive, got {}",
        initial);
  if (!is_dynamic) return;
  check(growth >= 1 && std::isfinite(growth), "loss_scaler", "growth must be at least 1, got {}",
        growth);
  check(backoff > 0 && backoff < 1, "loss_scaler", "backoff must be in (0, 1), got {}", backoff);
  check(interval > 0 && hysteresis > 0, "loss_scaler",
        "interval and hysteresis must be positive, got {} and {}", interval, hysteresis);
  check(floor > 0 && floor <= initial && initial <= ceiling && std::isfinite(ceiling),
        "loss_scaler", "0 < floor <= initial <= ceiling must hold, got {}, {} and {}", floor,
        initial, ceiling);
}

LossScaler default_scaler(DType dtype) {
  return dtype == DType::f16 ? LossScaler::dynamic() : LossScaler::none();
}

namespace {

[[noreturn]] void refuse(std::string_view text) {
  fail("loss_scale",
       "must be none, fixed:N, dynamic[:INITIAL[:GROWTH[:BACKOFF[:INTERVAL]]]] or "
       "tensorflow[:INITIAL[:INCR_EVERY[:DECR_EVERY[:INCR_RATIO[:DECR_RATIO]]]]], got '{}'",
       text);
}

// Splits "dynamic:1024:2" into its parts.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(':', begin), text.size());
      words_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  std::string_view name() const { return words_[0]; }
  void expect(size_t least, size_t most) const {
    if (words_.size() - 1 < least || words_.size() - 1 > most) refuse(text_);
  }
  // Number i behind the name.
  template <class T>
  T number(size_t i, T otherwise) const {
    if (i >= words_.size()) return otherwise;
    T value{};
    const std::string_view word = words_[i];
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) refuse(text_);
    return value;
  }

 private:
  std::string_view text_;
  std::vector<std::string_view> words_;
};

}  // namespace

LossScaler parse_loss_scale(std::string_view text) {
  const Words words(text);
  if (words.name() == "none") {
    words.expect(0, 0);
    return LossScaler::none();
  }
  if (words.name() == "fixed") {
    words.expect(1, 1);
    return LossScaler::fixed(words.number<float>(1, 1));
  }
  if (words.name() == "dynamic") {
    words.expect(0, 4);
    const LossScaler usual = LossScaler::dynamic();
    return LossScaler::dynamic(words.number(1, usual.initial), words.number(2, usual.growth),
                               words.number(3, usual.backoff), words.number(4, usual.interval));
  }
  if (words.name() == "tensorflow") {
    words.expect(0, 5);
    const LossScaler usual = LossScaler::tensorflow(32768, 2000);
    return LossScaler::tensorflow(words.number(1, usual.initial), words.number(2, usual.interval),
                                  words.number(3, usual.hysteresis), words.number(4, usual.growth),
                                  words.number(5, usual.backoff));
  }
  refuse(text);
}

std::string loss_scale_text(const LossScaler& s) {
  if (!s.is_dynamic) return s.initial == 1 ? "none" : fmt::format("fixed:{}", s.initial);
  if (s.keep_bad)
    return fmt::format("tensorflow:{}:{}:{}:{}:{}", s.initial, s.interval, s.hysteresis, s.growth,
                       s.backoff);
  return fmt::format("dynamic:{}:{}:{}:{}", s.initial, s.growth, s.backoff, s.interval);
}

namespace {

// Says where updates are lost; empty if they are not.
std::string lost_updates(const LossScaler& scaler, const UpdateCounts& counts) {
  const uint64_t in_a_row = counts.skipped_in_a_row;
  if (in_a_row > 0 && (!scaler.is_dynamic || counts.scale <= scaler.floor))
    return fmt::format(
        ": the last {} were not finite and the scale {}, so every such update is lost. Look "
        "for a NaN or an infinity in the loss or the inputs, a learning rate that is too "
        "high, or an f16 op that overflows without scaling.",
        in_a_row, scaler.is_dynamic ? "is at its floor" : "cannot fall");
  // So many overflows divide the scale by far more than f16's range: the scale is not the cause.
  if (in_a_row > uint64_t{20} * scaler.hysteresis)
    return fmt::format(
        ": the last {} were skipped whatever the scale was. Look for a NaN or an infinity "
        "in the loss or the inputs, or an f16 op that overflows without scaling.",
        in_a_row);
  return "";
}

// There was no overflow so far, so the scale may be smaller than necessary.
std::string untried_scale(const LossScaler& scaler, const UpdateCounts& counts) {
  if (scaler.is_dynamic && counts.scale >= scaler.ceiling)
    return ": no overflow so far, and the scale is at its ceiling.";
  if (scaler.is_dynamic && counts.growths > 0)
    return fmt::format(
        ": never an overflow, though the scale grew {} times; start from a higher one to get "
        "there sooner.",
        counts.growths);
  if (scaler.initial != 1 && counts.updates >= 2000)
    return fmt::format(
        ": never an overflow, and the scale has not grown{}; {}.",
        scaler.is_dynamic ? fmt::format(" (its interval is {})", scaler.interval) : "",
        scaler.is_dynamic ? "a shorter interval or a higher start would try more"
                          : "a higher one, or a dynamic one, may keep more");
  return ": no overflow so far.";
}

std::string history(const LossScaler& scaler, const UpdateCounts& counts) {
  // Even from 2^24, f16 needs no more reductions of the scale than this to hold 1.
  constexpr uint64_t many_falls = 10;
  if (counts.skipped + counts.voided == 0) return untried_scale(scaler, counts);
  if (const std::string lost = lost_updates(scaler, counts); !lost.empty()) return lost;
  if (counts.skipped_in_a_row > 0 && counts.updates == 0)
    return ": the scale is still falling to what f16 can hold; this is normal at the start.";
  if (counts.skipped > counts.updates)
    return ": most updates were skipped; start from a lower scale.";
  if (counts.falls >= many_falls)
    return fmt::format(
        ": the scale only falls, {} times since it last grew: overflows come sooner than {} finite "
        "updates in a row. Look for what spikes (a learning rate that is too high, an f16 op near "
        "its limit), or shorten the interval.",
        counts.falls, scaler.interval);
  return scaler.is_dynamic ? ": normal; the scale falls at each overflow and rises again."
                           : ": overflows were skipped; a lower scale would lose no update.";
}

}  // namespace

std::string diagnose(const LossScaler& scaler, const UpdateCounts& counts) {
  std::string text = fmt::format("loss scale {:g}, {} updates done, {} skipped", counts.scale,
                                 counts.updates, counts.skipped);
  if (counts.voided > 0) text += fmt::format(", {} micro-batches voided", counts.voided);
  text += history(scaler, counts);
  if (counts.denormal_gradients >= 0.1)
    text += fmt::format(
        " In {:.0f} % of the 16-bit gradients most values are denormal: {}.",
        100 * counts.denormal_gradients,
        counts.skipped_in_a_row > 0 || counts.falls > 0
            ? "the largest gradients allow no higher scale, so keep the ops around them in f32"
            : "start from a higher scale");
  return text;
}

}  // namespace rw

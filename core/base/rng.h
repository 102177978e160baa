// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). An op takes a range of counters
// and keeps where it began, so replay draws the same numbers with no state to save.
#pragma once

#include <atomic>
#include <cstdint>

namespace rw {

// A stream of random numbers: a seed and the next counter. Copies go on alike.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  Generator(const Generator& other) : Generator(other.seed()) { next_ = other.position(); }
  Generator& operator=(const Generator& other) {
    seed(other.seed());
    next_ = other.position();
    return *this;
  }

  // Counters from `first` on, of the stream with this `seed`.
  struct Counters {
    uint64_t seed, first;
  };
  // Reserves the counters for n elements (four per counter). No two threads get the same ones;
  // which of them is first is chance: for numbers that can be had again, each takes a Generator of
  // its own.
  Counters take(uint64_t n) { return {seed_, next_.fetch_add((n + 3) / 4)}; }

  // Starts again, at counter 0 of another seed.
  void seed(uint64_t seed) { seed_ = seed, next_ = 0; }

  uint64_t seed() const { return seed_; }      // that it was given
  uint64_t position() const { return next_; }  // with seed(): the whole state
  // Goes on at that counter.
  void set_position(uint64_t position) { next_ = position; }

  // Goes on with the counters of micro-batch number `index`, from 0, of a training: 2^40 that are
  // its own, behind as many that initial values are drawn from. So what a micro-batch draws does
  // not depend on who ran those before it.
  void begin_stream(uint64_t index) { next_ = (index + 1) << stream_bits; }
  // The number of the first stream of which nothing has been taken.
  uint64_t next_stream() const {
    const uint64_t taken = (next_ + (uint64_t{1} << stream_bits) - 1) >> stream_bits;
    return taken == 0 ? 0 : taken - 1;
  }

 private:
  static constexpr int stream_bits = 40;
  std::atomic<uint64_t> seed_, next_ = 0;
};

// The generator that random ops take their numbers from: the process's, or this thread's own in a
// GeneratorScope.
Generator& default_generator();

void manual_seed(uint64_t seed);  // of default_generator()

// A generator to draw from later: the one given, which must live until then, or the default one of
// that moment and thread.
class GeneratorRef {
 public:
  GeneratorRef() = default;
  GeneratorRef(Generator& generator) : given_(&generator) {}
  // The one given, or the calling thread's default_generator() now.
  Generator& get() const { return given_ ? *given_ : default_generator(); }

 private:
  Generator* given_ = nullptr;
};

// While it lives, this thread's default generator is one of its own.
class GeneratorScope {
 public:
  explicit GeneratorScope(uint64_t seed) : GeneratorScope(Generator(seed)) {}
  explicit GeneratorScope(const Generator& start);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator generator_;
  Generator* previous_;
};

}  // namespace rw

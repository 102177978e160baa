// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). An op takes a range of counters
// and records where it began, so a replay draws the same numbers without saved state.
#pragma once

#include <atomic>
#include <cstdint>

namespace rw {

// A stream of random numbers: a seed and the next counter. Copies continue alike.
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
  // Reserves the counters for n elements (four per counter). No two threads get the same ones, but
  // chance decides which thread is first: for reproducible numbers, each thread needs a Generator
  // of its own.
  Counters take(uint64_t n) { return {seed_, next_.fetch_add((n + 3) / 4)}; }

  // Restarts at counter 0 of another seed.
  void seed(uint64_t seed) { seed_ = seed, next_ = 0; }

  uint64_t seed() const { return seed_; }      // the seed that it was given
  uint64_t position() const { return next_; }  // with seed(): the whole state
  // Continues at that counter.
  void set_position(uint64_t position) { next_ = position; }

  // Continues with the counters of micro-batch number `index`, from 0, of a training: each has 2^40
  // of its own, after as many for initial values. So the numbers that a micro-batch draws do not
  // depend on who ran those before it.
  void begin_stream(uint64_t index) { next_ = (index + 1) << stream_bits; }
  // Returns the number of the first stream from which nothing has been taken.
  uint64_t next_stream() const {
    const uint64_t taken = (next_ + (uint64_t{1} << stream_bits) - 1) >> stream_bits;
    return taken == 0 ? 0 : taken - 1;
  }

 private:
  static constexpr int stream_bits = 40;
  std::atomic<uint64_t> seed_, next_ = 0;
};

// Returns the generator from which random ops take their numbers: the process's, or this thread's
// own in a GeneratorScope.
Generator& default_generator();

void manual_seed(uint64_t seed);  // seeds default_generator()

// A generator to draw from later: the given one, which must live until then, or the default one of
// that moment and thread.
class GeneratorRef {
 public:
  GeneratorRef() = default;
  GeneratorRef(Generator& generator) : given_(&generator) {}
  // Returns the given one, or the calling thread's current default_generator().
  Generator& get() const { return given_ ? *given_ : default_generator(); }

 private:
  Generator* given_ = nullptr;
};

// While it lives, this thread has a default generator of its own.
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

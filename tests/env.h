// Sets an environment variable for a scope, which ends with the old value: devices read theirs when
// they are opened.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace rw::test {

class Env {
 public:
  Env(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Env() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// On a driver that compiles for tenths of a second per pipeline (SwiftShader), tests leave out
// whole models, which the runs on other drivers have. Every kernel is called all the same.
inline bool is_brief() {
  return std::getenv("REWIND_TESTS_BRIEF") != nullptr;
}

// How often a test over drawn programs repeats itself: `./rewind test --all` takes its time.
inline int rounds(int usually, int in_all) {
  return std::getenv("REWIND_TESTS_ALL") != nullptr ? in_all : usually;
}

}  // namespace rw::test

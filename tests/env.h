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

}  // namespace rw::test

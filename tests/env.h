// Sets an environment variable for a scope: devices read theirs when they are opened.
#pragma once

#include <cstdlib>

namespace rw::test {

class Env {
 public:
  Env(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Env() { unsetenv(name_); }
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

 private:
  const char* name_;
};

}  // namespace rw::test

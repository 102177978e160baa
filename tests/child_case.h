// A test case in a process of its own, which may be killed.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>
#include <unistd.h>

namespace rw::test {

// The exit status, or -SIGNAL, of this program running only the case of that name.
inline int status_of_case(const std::string& name) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string only = "--test-case=" + name;
  const pid_t child = fork();
  if (child == 0) {
    execl(self.c_str(), self.c_str(), only.c_str(), "--no-skip", "--minimal", nullptr);
    _exit(127);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace rw::test

// A test case in a process of its own, which may be killed.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace rw::test {

// How this program was called, without its options: a driver that was fetched has a loader of its
// own before it.
inline std::vector<std::string> this_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
    if (word == program_invocation_name) break;
  }
  return words;
}

// The exit status, or -SIGNAL, of this program running only the case of that name.
inline int status_of_case(const std::string& name) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> words = this_command();
  words.insert(words.end(), {"--test-case=" + name, "--no-skip", "--minimal"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(self.c_str(), arguments.data());
    _exit(127);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace rw::test

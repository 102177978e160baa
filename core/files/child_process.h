// Runs a part of the program in a process of its own, because it may crash or never end.
#pragma once

#include <functional>
#include <string>

namespace rw {

using Send =
    std::function<void(const std::string& line)>;  // from any thread; line ends become spaces

// The end of a child process.
struct ChildEnd {
  std::string failure;   // empty: its body returned
  bool is_hung = false;  // it waited without end, perhaps because it is a copy
};

// Runs `body` in a child process, a copy of this one that shares no memory with it; lines that it
// sends arrive here in `receive`. Returns when the child is gone: its body returned, or there was a
// signal or an exception, or since its last line it used more than `seconds` of a core and more
// than eight times what any line took before, or it slept for `asleep_seconds`, with nothing to
// run. A child that waits for its turn on a busy machine does neither. The child ends with the
// parent.
//
// Only the calling thread exists in the child: a lock that another thread holds stays locked, and
// work of a library's threads is never done.
ChildEnd run_in_child(const std::function<void(const Send&)>& body,
                      const std::function<void(const std::string&)>& receive, double seconds,
                      double asleep_seconds = 10);

}  // namespace rw

// A part of the program in a process of its own, for what may crash or never end.
#pragma once

#include <functional>
#include <string>

namespace rw {

using Send =
    std::function<void(const std::string& line)>;  // from any thread; line ends become spaces

// Runs `body` in a child process, a copy of this one that shares no memory with it; what it sends
// arrives here in `receive`. Returns when the child is gone: "" if `body` returned, else why it did
// not: a signal, an exception, or that it used `seconds` of a core, or slept for a minute, since
// the last line. The child ends with the parent.
//
// Only the calling thread is there in the child: a lock that another one holds stays locked.
std::string run_in_child(const std::function<void(const Send&)>& body,
                         const std::function<void(const std::string&)>& receive, double seconds);

}  // namespace rw

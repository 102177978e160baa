// Messages between the ranks of a run: processes that train one model together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace rw {

// One rank's connection to the others. All ranks make the same calls in the same order, with the
// same numbers of bytes; each waits for the others. RankError if that fails.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;                      // in [0, size())
  virtual int size() const = 0;                      // how many ranks there are
  virtual int local_rank() const { return rank(); }  // among the ranks on this machine
  virtual int local_size() const { return size(); }  // how many are there
  // The carrier of the messages: "Open MPI 4.1.4".
  virtual std::string str() const = 0;

  // Sends the first sizes[0] bytes of `to` to rank 0, the next sizes[1] to rank 1 and so on;
  // `sizes` has those of all ranks. `from` receives what the ranks sent here, by rank.
  virtual void all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                          std::span<std::byte> from) = 0;
  void all_to_all(std::span<const std::byte> to, std::span<std::byte> from);  // in equal parts
  // `all` receives what all ranks give, by rank: sizes[r] bytes from rank r.
  virtual void all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                          std::span<std::byte> all) = 0;
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all);  // as much of each
  // Sends what rank `root` has to all ranks.
  virtual void broadcast(std::span<std::byte> bytes, int root = 0) = 0;
  // Ends the program on all ranks with an exit status.
  [[noreturn]] virtual void abort(int status) = 0;
};

// The values of all ranks, each of which gives equally many, by rank.
template <class T>
std::vector<T> gather(Communicator& ranks, std::span<const T> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(own.size() * static_cast<size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(all)));
  return all;
}
template <class T>
std::vector<T> gather(Communicator& ranks, const T& own) {
  return gather(ranks, std::span<const T>(&own, 1));
}
// Gathers texts of any lengths.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& own);
// The sum over the ranks, in their order.
double sum_over(Communicator& ranks, double own);

}  // namespace rw

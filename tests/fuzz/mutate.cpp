#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <iterator>

namespace rw::fuzz {

namespace {

constexpr uint64_t interesting[] = {0,
                                    1,
                                    2,
                                    7,
                                    127,
                                    128,
                                    255,
                                    256,
                                    32767,
                                    65535,
                                    65536,
                                    1u << 20,
                                    INT32_MAX,
                                    uint64_t{INT32_MAX} + 1,
                                    UINT32_MAX,
                                    uint64_t{1} << 32,
                                    uint64_t{1} << 40,
                                    INT64_MAX,
                                    uint64_t{1} << 63,
                                    UINT64_MAX};

// The most bytes of a table that is changed as a table, since taking it apart takes time.
constexpr size_t most_table_bytes = 4096;

class Mutation {
 public:
  Mutation(Bytes& bytes, const std::vector<Bytes>& pool, const Target& target, DataRandom& random)
      : bytes_(bytes), pool_(pool), target_(target), random_(random) {}

  // Every second change of a table is one of lines and cells, since the first check of a line
  // refuses random bytes.
  void apply() {
    if (target_.cells && bytes_.size() <= most_table_bytes && below(2)) return change_table();
    switch (random_.below(11)) {
      case 0:
        return flip_bit();
      case 1:
        return set_byte();
      case 2:
        return write_integer();
      case 3:
        return insert(Bytes(size_t{1} + below(16), static_cast<uint8_t>(below(256))));
      case 4:
        return erase();
      case 5:
        return insert(part_of(bytes_));
      case 6:
        return insert(part_of(pool_[below(pool_.size())]));
      case 7:
        return replace_number();
      case 8:
        return repeat();
      case 9:
        return bytes_.resize(below(bytes_.size() + 1));
      default:
        return insert_word();
    }
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_.below(std::max<size_t>(1, n))); }
  size_t place() { return below(bytes_.size() + 1); }
  uint64_t integer() { return interesting[below(std::size(interesting))]; }
  auto at(size_t i) { return bytes_.begin() + static_cast<ptrdiff_t>(i); }

  Bytes part_of(const Bytes& from) {
    const size_t begin = below(from.size()),
                 length = below(std::min<size_t>(64, from.size() - begin) + 1);
    return {from.begin() + static_cast<ptrdiff_t>(begin),
            from.begin() + static_cast<ptrdiff_t>(begin + length)};
  }

  void insert(const Bytes& what) { bytes_.insert(at(place()), what.begin(), what.end()); }
  void flip_bit() {
    if (!bytes_.empty()) bytes_[below(bytes_.size())] ^= static_cast<uint8_t>(1u << below(8));
  }
  void set_byte() {
    if (!bytes_.empty()) bytes_[below(bytes_.size())] = static_cast<uint8_t>(integer());
  }
  void erase() {
    const size_t begin = place();
    bytes_.erase(at(begin), at(begin + below(std::min<size_t>(64, bytes_.size() - begin) + 1)));
  }

  // Writes an integer of 1 to 8 bytes, in either order.
  void write_integer() {
    const size_t size = size_t{1} << below(4), begin = place();
    uint64_t value = integer() + below(3) - 1;
    if (below(2)) value = __builtin_bswap64(value) >> (64 - 8 * size);
    for (size_t i = 0; i < size && begin + i < bytes_.size(); ++i)
      bytes_[begin + i] = static_cast<uint8_t>(value >> (8 * i));
  }

  // Replaces a number in the text.
  void replace_number() {
    size_t begin = place();
    while (begin < bytes_.size() && !std::isdigit(bytes_[begin])) ++begin;
    size_t end = begin;
    while (end < bytes_.size() && std::isdigit(bytes_[end])) ++end;
    bytes_.erase(at(begin), at(end));
    const std::string text = (below(8) ? "" : "-") + std::to_string(integer());
    bytes_.insert(at(begin), text.begin(), text.end());
  }

  // Repeats a short part many times, which gives deep nesting and long runs.
  void repeat() {
    const size_t begin = below(bytes_.size()),
                 length = std::min<size_t>(1 + below(4), bytes_.size() - begin);
    const Bytes part(at(begin), at(begin + length));
    const size_t times = size_t{1} << below(16);
    Bytes all;
    for (size_t i = 0; i < times; ++i) all.insert(all.end(), part.begin(), part.end());
    bytes_.insert(at(begin), all.begin(), all.end());
  }

  void insert_word() {
    if (target_.words.empty()) return flip_bit();
    const std::string_view word = target_.words[below(target_.words.size())];
    if (below(2)) return insert(to_bytes(word));
    const size_t begin = place();  // writes over existing bytes
    for (size_t i = 0; i < word.size() && begin + i < bytes_.size(); ++i)
      bytes_[begin + i] = static_cast<uint8_t>(word[i]);
  }

  using Lines = std::vector<Bytes>;

  static Lines split(const Bytes& bytes, char separator) {
    Lines parts(1);
    for (const uint8_t byte : bytes) {
      if (byte == static_cast<uint8_t>(separator))
        parts.emplace_back();
      else
        parts.back().push_back(byte);
    }
    return parts;
  }

  static Bytes join(const Lines& parts, char separator) {
    Bytes all;
    for (const Bytes& part : parts) {
      if (&part != &parts.front()) all.push_back(static_cast<uint8_t>(separator));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  const Bytes& any_of(const Lines& parts) { return parts[below(parts.size())]; }

  // Returns the line around some byte of a table.
  Bytes line_of(const Bytes& table) {
    const auto at = table.begin() + static_cast<ptrdiff_t>(below(table.size()));
    const auto before = std::find(std::make_reverse_iterator(at), table.rend(), '\n');
    return {before.base(), std::find(at, table.end(), '\n')};
  }

  // Returns a cell of this table or of another one, or a word.
  Bytes cell() {
    if (below(3) == 0 && !target_.words.empty())
      return to_bytes(target_.words[below(target_.words.size())]);
    const Lines cells = split(line_of(below(2) ? bytes_ : any_of(pool_)), target_.cells);
    return any_of(cells);
  }

  void change_table() {
    Lines lines = split(bytes_, '\n');
    const size_t at = below(lines.size());
    const auto line = lines.begin() + static_cast<ptrdiff_t>(at);
    switch (random_.below(7)) {
      case 0:  // a line again, in another place
        lines.insert(lines.begin() + static_cast<ptrdiff_t>(below(lines.size() + 1)), Bytes(*line));
        break;
      case 1:
        lines.erase(line);
        break;
      case 2:
        std::swap(*line, lines[below(lines.size())]);
        break;
      case 3:  // a line of another input
        lines.insert(line, line_of(any_of(pool_)));
        break;
      case 4: {  // removes a column of all lines, or repeats it at the end
        const bool comes = below(2);
        const size_t column = below(split(lines[0], target_.cells).size());
        for (Bytes& each : lines) {
          Lines cells = split(each, target_.cells);
          if (column >= cells.size()) continue;
          if (comes) cells.push_back(Bytes(cells[column]));
          if (!comes && cells.size() > 1)
            cells.erase(cells.begin() + static_cast<ptrdiff_t>(column));
          each = join(cells, target_.cells);
        }
        break;
      }
      default: {  // replaces a cell
        Lines cells = split(*line, target_.cells);
        cells[below(cells.size())] = cell();
        *line = join(cells, target_.cells);
      }
    }
    bytes_ = join(lines, '\n');
  }

  Bytes& bytes_;
  const std::vector<Bytes>& pool_;
  const Target& target_;
  DataRandom& random_;
};

}  // namespace

Bytes mutate(const std::vector<Bytes>& pool, const Target& target, size_t most,
             DataRandom& random) {
  Bytes bytes = pool[random.below(pool.size())];
  Mutation mutation(bytes, pool, target, random);
  const uint64_t changes = 1 + random.below(4);
  for (uint64_t i = 0; i < changes; ++i) mutation.apply();
  bytes.resize(std::min(bytes.size(), most));
  return bytes;
}

}  // namespace rw::fuzz

// Rows of options in which each pair of levels of two options occurs.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

namespace rw::test {

// Rows of levels, one for each option, of which option i has levels[i]. Each row begins with a pair
// that no row has yet and goes on, option by option, with the level that makes most new pairs.
inline std::vector<std::vector<size_t>> covering_rows(const std::vector<size_t>& levels) {
  using Place = std::pair<size_t, size_t>;  // an option and its level
  std::set<std::pair<Place, Place>> open;
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = a + 1; b < levels.size(); ++b)
      for (size_t i = 0; i < levels[a]; ++i)
        for (size_t k = 0; k < levels[b]; ++k) open.insert({{a, i}, {b, k}});
  const auto pair = [](Place x, Place y) { return x < y ? std::pair(x, y) : std::pair(y, x); };
  std::vector<std::vector<size_t>> rows;
  while (!open.empty()) {
    std::vector<Place> row = {open.begin()->first, open.begin()->second};
    for (size_t option = 0; option < levels.size(); ++option) {
      if (option == row[0].first || option == row[1].first) continue;
      size_t best = 0, most = 0;
      for (size_t n = 0; n < levels[option]; ++n) {
        const size_t level = (rows.size() + n) % levels[option];  // none is the favourite
        size_t news = 1;
        for (const Place& other : row) news += open.count(pair(other, {option, level}));
        if (news > most) most = news, best = level;
      }
      row.push_back({option, best});
    }
    for (const Place& x : row)
      for (const Place& y : row) open.erase({x, y});
    rows.emplace_back(levels.size());
    for (const auto& [option, level] : row) rows.back()[option] = level;
  }
  return rows;
}

// Takes the levels of a row one after the other.
struct Levels {
  const size_t* next;
  template <class T>
  T pick(std::initializer_list<T> all) {
    return all.begin()[*next++];
  }
};

}  // namespace rw::test

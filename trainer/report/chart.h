// Line charts, as SVG and as characters.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rw {

struct Series {
  std::string name;
  // The number of a colour of the page; a method has the same one everywhere.
  int colour = 0;
  bool published = false;                              // the figures are from others: dashed
  std::vector<std::pair<double, double>> points = {};  // by x
  std::vector<std::string> notes = {};                 // shown at each point, or empty
};

struct Chart {
  std::string title, caption;
  std::string x, y;  // labels of the axes, with units
  bool log_x = false, log_y = false;
  std::vector<Series> series = {};
};

std::string to_svg(const Chart& chart);      // for an html_page()
std::string to_picture(const Chart& chart);  // a file of its own
std::string to_text(const Chart& chart);     // for terminals; ends with a line break

}  // namespace rw

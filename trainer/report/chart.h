// Line charts, as SVG and as characters.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rw {

struct Series {
  std::string name;
  int colour = 0;          // number of a colour of the page, the same for a method everywhere
  bool published = false;  // somebody else's figures: dashed
  std::vector<std::pair<double, double>> points = {};  // by x
  std::vector<std::string> notes = {};                 // shown over each point, or empty
};

struct Chart {
  std::string title, caption;
  std::string x, y;  // what the axes show, with units
  bool log_x = false, log_y = false;
  std::vector<Series> series = {};
};

std::string to_svg(const Chart& chart);      // a figure of an html_page()
std::string to_picture(const Chart& chart);  // a file by itself
std::string to_text(const Chart& chart);     // for terminals, with a line break at the end

}  // namespace rw

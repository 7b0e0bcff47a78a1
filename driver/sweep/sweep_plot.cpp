#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "driver/report/html/html.h"
#include "driver/sweep/sweep_output.h"
#include "support/integer_math.h"
#include "support/text.h"

namespace graphpipe::driver {
namespace {

constexpr double kWidth = 300, kHeight = 200, kLeft = 70, kTop = 60, kPanelWidth = 400, kPanelHeight = 310,
                 kFontSize = 12;
constexpr size_t kPanelsPerRow = 3;
constexpr const char* kColors[] = {"#1b1b1b", "#d1495b", "#00798c", "#edae49",
                                   "#7a5195", "#66a182", "#9a6324", "#808080"};
// The lines can be told apart without colours too.
constexpr const char* kDashes[] = {"none", "7 3", "2 2", "9 3 2 3", "14 4", "1 3", "4 1", "9 2 2 2 2 2"};

// After the last colour the dashes move on by one, so that no two of 64 lines look the same.
std::string stroke_of(size_t line) {
  return fmt::format("stroke=\"{}\" stroke-dasharray=\"{}\"", kColors[line % std::size(kColors)],
                     kDashes[(line + line / std::size(kColors)) % std::size(kDashes)]);
}

/// The names of the lines, in columns of one width that all lie within the picture.
class Legend {
 public:
  Legend(const std::vector<std::string>& names, double width) {
    const double max_width = width - 2 * kMargin - kSample - kGap;
    double widest = 0;
    for (const std::string& name : names) {
      const bool fits = text_width(name, kFontSize) <= max_width;
      labels_.push_back(fits ? name : fitted(Terminal::encode_text(name).str(), max_width, kFontSize));
      widest = std::max(widest, text_width(labels_.back(), kFontSize));
    }
    column_width_ = kSample + widest + kGap;
    columns_ = std::max<size_t>(1, static_cast<size_t>((width - 2 * kMargin) / column_width_));
  }

  double height() const {
    return kLine * std::ceil(static_cast<double>(labels_.size()) / static_cast<double>(columns_));
  }

  std::string draw(double top) const {
    std::string out;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const double x = kMargin + column_width_ * static_cast<double>(i % columns_),
                   y = top + kLine * static_cast<double>(i / columns_) + kFontSize;
      out += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" {} stroke-width=\"2.5\"/>\n<text x=\"{:.1f}\" "
          "y=\"{}\">{}</text>\n",
          x, y - 4, x + kSample - 6, y - 4, stroke_of(i), x + kSample, y, html_text(labels_[i]));
    }
    return out;
  }

 private:
  /// The sample shows at least one period of the longest dashes.
  static constexpr double kMargin = 20, kSample = 46, kGap = 16, kLine = 20;
  std::vector<std::string> labels_;
  double column_width_ = 0;
  size_t columns_ = 1;
};

/// Points of a panel by line and place on x.
struct Panel {
  std::string title;
  std::map<size_t, std::map<size_t, double>> lines;
};

class Plot {
 public:
  Plot(const Sweep& sweep, const std::vector<SweepCell>& cells, const std::map<std::string, SweepRow>& rows)
      : sweep_(sweep), x_(axis_named(sweep.plot.x).value_or(0)), line_(axis_named(sweep.plot.line)) {
    for (const SweepCell& cell : cells) {
      const auto row = rows.find(cell.key);
      if (row == rows.end()) continue;
      const auto number = row->second.numbers.find(sweep.plot.y);
      if (number == row->second.numbers.end()) continue;
      Panel& panel = panel_of(cell);
      panel.lines[line_ ? place_of(*line_, cell) : 0][place_of(x_, cell)] = number->second;
      highest_ = std::max(highest_, number->second);
    }
  }

  std::string draw() const {
    const size_t shown = std::min(panels_.size(), kMaxPanels);
    const size_t columns = std::clamp<size_t>(shown, 1, kPanelsPerRow), lines = ceil_div(shown, columns);
    const double width = kPanelWidth * static_cast<double>(columns),
                 panels_height = kPanelHeight * static_cast<double>(lines);
    const Legend legend(line_ ? sweep_.axes[*line_].values : std::vector<std::string>(), width);
    const double height = panels_height + legend.height() + 20;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" "
        "font-size=\"{2}\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height, kFontSize);
    for (size_t i = 0; i < shown; ++i)
      out += panel(panels_[i], kPanelWidth * static_cast<double>(i % columns),
                   kPanelHeight * static_cast<double>(i / columns));
    if (panels_.size() > shown)
      out += fmt::format("<text x=\"10\" y=\"16\">{} more panels are left out</text>\n", panels_.size() - shown);
    return out + legend.draw(panels_height + 14) + "</svg>\n";
  }

 private:
  std::optional<size_t> axis_named(const std::string& name) const {
    for (size_t i = 0; i < sweep_.axes.size(); ++i)
      if (sweep_.axes[i].name == name) return i;
    return std::nullopt;
  }
  size_t place_of(size_t axis, const SweepCell& cell) const {
    const auto& values = sweep_.axes[axis].values;
    return static_cast<size_t>(std::ranges::find(values, cell.values[axis]) - values.begin());
  }
  Panel& panel_of(const SweepCell& cell) {
    std::string title;
    for (size_t i = 0; i < sweep_.axes.size(); ++i)
      if (i != x_ && i != line_ && sweep_.axes[i].values.size() > 1)
        title += text(title.empty() ? "" : ", ", sweep_.axes[i].name, " ", cell.values[i]);
    const auto found = std::ranges::find(panels_, title, &Panel::title);
    return found != panels_.end() ? *found : panels_.emplace_back(Panel{.title = title, .lines = {}});
  }

  double x_of(size_t place, double left) const {
    const size_t count = sweep_.axes[x_].values.size();
    return left + kLeft + kWidth * (static_cast<double>(place) + 0.5) / static_cast<double>(count);
  }
  double y_of(double value, double top) const {
    return top + kTop + kHeight * (1 - (highest_ > 0 ? std::max(value, 0.0) / highest_ : 0));
  }

  std::string panel(const Panel& panel, double left, double top) const {
    std::string what = sweep_.plot.y;
    std::ranges::replace(what, '_', ' ');
    std::string out = fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "fill=\"none\" stroke=\"#bbb\"/>\n",
        left + kLeft + kWidth / 2, top + kTop - 12, html_text(panel.title.empty() ? what : panel.title), left + kLeft,
        top + kTop, kWidth, kHeight);
    constexpr int kMarks = 4;
    for (int i = 0; i <= kMarks; ++i) {
      const double value = highest_ * i / kMarks;
      out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left + kLeft - 6,
                         y_of(value, top) + 4, html_text(shown_number(sweep_.plot.y, value)));
    }
    const std::vector<std::string>& values = sweep_.axes[x_].values;
    for (size_t i = 0; i < values.size(); ++i)
      out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x_of(i, left),
                         top + kTop + kHeight + 16, html_text(values[i]));
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", left + kLeft + kWidth / 2,
                       top + kTop + kHeight + 34, html_text(sweep_.plot.x));
    for (const auto& [line, points] : panel.lines) out += curve(line, points, left, top);
    return out;
  }

  std::string curve(size_t line, const std::map<size_t, double>& points, double left, double top) const {
    const char* color = kColors[line % std::size(kColors)];
    std::string path, dots;
    for (const auto& [place, value] : points) {
      const double x = x_of(place, left), y = y_of(value, top);
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{:.6g}</title></circle>\n", x,
                          y, color, value);
    }
    return fmt::format("<polyline points=\"{}\" fill=\"none\" {} stroke-width=\"1.6\"/>\n", path, stroke_of(line)) +
           dots;
  }

  const Sweep& sweep_;
  size_t x_;
  std::optional<size_t> line_;
  std::vector<Panel> panels_;
  double highest_ = 0;
};

}  // namespace

std::string sweep_svg(const Sweep& sweep, const std::vector<SweepCell>& cells,
                      const std::map<std::string, SweepRow>& rows) {
  return Plot(sweep, cells, rows).draw();
}

}  // namespace graphpipe::driver

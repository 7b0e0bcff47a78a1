#include "driver/report/html/stage_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "driver/pipeline/stage_modules.h"
#include "driver/report/html/html.h"
#include "driver/report/plan_report.h"
#include "driver/report/report.h"

namespace graphpipe::driver {
namespace {

constexpr size_t kMaxDrawn = 200, kMaxOperators = 400, kMaxName = 200, kMaxSummary = 60, kMaxLabel = 200;
constexpr size_t kBandColumns = 4;
constexpr double kLetter = 11, kBoxWidth = 216, kBoxHeight = 62, kGapX = 60, kGapY = 18, kPictureMargin = 8;

struct StagePlace {
  double x = 0, y = 0, band_top = 0;
};

// A stage's column is the length of the longest path to it from a stage that reads inputs, so every line leads to the
// right. A graph with more columns than fit on a page continues in a band below, from the left again, like lines of
// text.
std::vector<StagePlace> places_of(const ir::StageGraph& graph, double& width, double& height) {
  std::vector<size_t> column(graph.stages.size(), 0), row(graph.stages.size(), 0), used;
  for (const ir::StageId id : graph.stage_ids()) {
    for (const ir::StageId before : graph.predecessors(id))
      column[id.index()] = std::max(column[id.index()], column[before.index()] + 1);
    used.resize(std::max(used.size(), column[id.index()] + 1));
    row[id.index()] = used[column[id.index()]]++;
  }
  std::vector<double> top;  // of each band
  height = kPictureMargin;
  for (size_t first = 0; first < used.size(); first += kBandColumns) {
    const size_t end = std::min(first + kBandColumns, used.size());
    const size_t rows = *std::max_element(used.begin() + static_cast<std::ptrdiff_t>(first),
                                          used.begin() + static_cast<std::ptrdiff_t>(end));
    top.push_back(height);
    height += (kBoxHeight + kGapY) * static_cast<double>(rows) + (end < used.size() ? kGapY : kPictureMargin - kGapY);
  }
  width = kPictureMargin * 2 + (kBoxWidth + kGapX) * static_cast<double>(std::min(used.size(), kBandColumns)) - kGapX;
  const double margin = used.size() > kBandColumns ? kGapX / 2 : 0;  // for the lines that turn back
  width += 2 * margin;
  std::vector<StagePlace> places(graph.stages.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const double band_top = top[column[i] / kBandColumns];
    places[i] = {kPictureMargin + margin + (kBoxWidth + kGapX) * static_cast<double>(column[i] % kBandColumns),
                 band_top + (kBoxHeight + kGapY) * static_cast<double>(row[i]), band_top};
  }
  return places;
}

/// The peak of the stage's fullest device.
double peak_bytes(const Pipeline& pipeline, const ir::StageChoice& choice) {
  int64_t peak = 0;
  const auto& programs = pipeline.built.schedule.programs;
  for (size_t i = 0; i < programs.size(); ++i)
    if (std::ranges::find(choice.devices, programs[i].device) != choice.devices.end())
      peak = std::max(peak, pipeline.built.memory[i].peak.count);
  return static_cast<double>(peak);
}

/// The lines in a box, not encoded yet. Only `name` (ASCII) may hold names of the model.
std::vector<std::string> stage_lines(const Pipeline& pipeline, ir::StageId id, const std::string& name) {
  const ir::Stage& stage = pipeline.stages.stages[id];
  const std::string heading =
      fmt::format("stage {}: {}", id.index(), name.empty() ? counted(stage.nodes.size(), "operator") : name);
  return {fitted(heading, kBoxWidth - 16, kLetter), names_of_devices(stage.choice),
          fmt::format("micro-batch {}: {}", stage.choice.micro_batch.count, human_seconds(item_seconds(stage))),
          fmt::format("{} weights, peak {}", human_bytes(static_cast<double>(stage.weight_bytes.count)),
                      human_bytes(peak_bytes(pipeline, stage.choice)))};
}

std::string stage_box(const Pipeline& pipeline, const std::string& plan, ir::StageId id, StagePlace place) {
  const std::vector<std::string> lines = stage_lines(pipeline, id, stage_name(pipeline, id));
  std::string out = fmt::format(
      "<a href=\"#{}stage-{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"#fff\" "
      "stroke=\"#111\"/>",
      plan, id.index(), place.x, place.y, kBoxWidth, kBoxHeight);
  for (size_t i = 0; i < lines.size(); ++i)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>", place.x + 8,
                       place.y + 15 + 14 * static_cast<double>(i), i == 0 ? " font-weight=\"bold\"" : "",
                       html_text(lines[i]));
  return out + "</a>\n";
}

std::map<std::pair<size_t, size_t>, double> bytes_between(const ir::StageGraph& graph) {
  std::map<std::pair<size_t, size_t>, double> bytes;
  for (const ir::EdgeId id : graph.edge_ids()) {
    const ir::StageEdge& edge = graph.edges[id];
    bytes[{edge.from.index(), edge.to.index()}] += edge.bytes.at(graph.stages[edge.from].choice.micro_batch);
  }
  return bytes;
}

/// From the right side of one box to the left side of another; to another band it runs in the gaps between the boxes.
std::string path_between(StagePlace from, StagePlace to) {
  constexpr double kLane = kGapX / 3;
  const double x1 = from.x + kBoxWidth, y1 = from.y + kBoxHeight / 2, x2 = to.x, y2 = to.y + kBoxHeight / 2;
  if (from.band_top != to.band_top)
    return fmt::format("M{:.1f} {:.1f} H{:.1f} V{:.1f} H{:.1f} V{:.1f} H{:.1f}", x1, y1, x1 + kLane,
                       to.band_top - kGapY, x2 - kLane, y2, x2);
  const double middle = (x1 + x2) / 2;
  return fmt::format("M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x1, y1, middle, y1, middle, y2, x2,
                     y2);
}

std::string tensor_lines(const ir::StageGraph& graph, const std::string& plan, const std::vector<StagePlace>& places) {
  std::string out;
  for (const auto& [ends, bytes] : bytes_between(graph))
    out += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"#333\" marker-end=\"url(#{}arrow)\"><title>stage {} to stage {}: {} per "
        "micro-batch</title></path>\n",
        path_between(places[ends.first], places[ends.second]), plan, ends.first, ends.second, human_bytes(bytes));
  return out;
}

std::string operators_of(const Pipeline& pipeline, const ir::Stage& stage) {
  std::string out;
  for (size_t i = 0; i < stage.nodes.size() && i < kMaxOperators; ++i)
    out += (i == 0 ? "" : ", ") + html_text(shortened(pipeline.priced.nodes[stage.nodes[i]].label.raw(), kMaxLabel));
  if (stage.nodes.size() > kMaxOperators) out += fmt::format(" and {} more", stage.nodes.size() - kMaxOperators);
  return out;
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string drawn_graph(const Pipeline& pipeline, const std::string& plan) {
  const ir::StageGraph& graph = pipeline.stages;
  if (graph.stages.size() > kMaxDrawn) return "";
  double width = 0, height = 0;
  const std::vector<StagePlace> places = places_of(graph, width, height);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"group\" "
      "font-family=\"sans-serif\" font-size=\"{4}\"><title>Graph of {2} stages, each a link to its operators</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<defs><marker id=\"{3}arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
      "orient=\"auto\">"
      "<path d=\"M0 0 L8 4 L0 8 z\" fill=\"#333\"/></marker></defs>\n",
      width, height, graph.stages.size(), plan, kLetter);
  out += tensor_lines(graph, plan, places);
  for (const ir::StageId id : graph.stage_ids()) out += stage_box(pipeline, plan, id, places[id.index()]);
  return out + "</svg>\n";
}

}  // namespace

std::string stage_name(const Pipeline& pipeline, ir::StageId id) {
  return shortened(Terminal::encode_text(joined(modules_in(pipeline, id))).str(), kMaxName);
}

std::string stage_picture(const Pipeline& pipeline, const PartOf& part) {
  const std::string picture = drawn_graph(pipeline, part.ids);
  return picture.empty() ? "" : wide_part("Graph of the stages" + part.words, picture);
}

std::string stage_svg(const Pipeline& pipeline) {
  std::string picture = drawn_graph(pipeline, "");
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const std::string link = fmt::format("<a href=\"#stage-{}\">", id.index());
    if (const size_t at = picture.find(link); at != std::string::npos) picture.replace(at, link.size(), "<g>");
  }
  for (size_t at = picture.find("</a>"); at != std::string::npos; at = picture.find("</a>", at))
    picture.replace(at, 4, "</g>");
  return picture;
}

std::string stage_dot(const Pipeline& pipeline) {
  std::string out = "digraph stages {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    std::string label;
    for (const std::string& line : stage_lines(pipeline, id, "")) label += (label.empty() ? "" : "\\n") + line;
    out += fmt::format("  stage{} [label=\"{}\"];\n", id.index(), label);
  }
  for (const auto& [ends, bytes] : bytes_between(pipeline.stages))
    out += fmt::format("  stage{} -> stage{} [label=\"{}\"];\n", ends.first, ends.second, human_bytes(bytes));
  return out + "}\n";
}

std::string stage_table(const Pipeline& pipeline, const PartOf& part) {
  std::vector<std::string> heading{"stage",           "after",   "devices",     "micro-batch",
                                   "one micro-batch", "weights", "peak memory", "operators"};
  const bool has_modules = std::ranges::any_of(pipeline.modules, [](const auto& names) { return !names.empty(); });
  if (has_modules) heading.push_back("modules");
  std::vector<std::vector<std::string>> rows{heading};
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const ir::Stage& stage = pipeline.stages.stages[id];
    std::string before;
    for (const ir::StageId other : pipeline.stages.predecessors(id))
      before += (before.empty() ? "" : ", ") + std::to_string(other.index());
    rows.push_back({fmt::format("<a href=\"#{1}stage-{0}\">{0}</a>", id.index(), part.ids),
                    before.empty() ? "-" : before, names_of_devices(stage.choice),
                    std::to_string(stage.choice.micro_batch.count), html_text(human_seconds(item_seconds(stage))),
                    html_text(human_bytes(static_cast<double>(stage.weight_bytes.count))),
                    html_text(human_bytes(peak_bytes(pipeline, stage.choice))), std::to_string(stage.nodes.size())});
    if (has_modules) rows.back().push_back(html_text(stage_name(pipeline, id)));
  }
  return html_table("Stages" + part.words + " in numbers", rows, origin_mark(Origin::kSimulated));
}

std::string stage_operators(const Pipeline& pipeline, const PartOf& part) {
  std::string out;
  for (const ir::StageId id : pipeline.stages.stage_ids()) {
    const ir::Stage& stage = pipeline.stages.stages[id];
    const std::string name = shortened(stage_name(pipeline, id), kMaxSummary);
    out += fmt::format(
        "<details class=\"operators\"><summary>stage {0}{4}: {1}</summary><p id=\"{3}stage-{0}\">{2}</p></details>\n",
        id.index(), counted(stage.nodes.size(), "operator"), operators_of(pipeline, stage), part.ids,
        name.empty() ? "" : " (" + html_text(name) + ")");
  }
  return out;
}

}  // namespace graphpipe::driver

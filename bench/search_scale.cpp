// How the search grows with the graph: a Multi-Modal Transformer of more and more layers on more and more devices.
//   search_scale [picture.svg]
// One line per case: planner, threads, operators, devices, seconds of processor time and of the clock, peak memory of
// the process in MB, stages, micro-batch, step, and the step over its proven bound. The picture shows seconds over
// operators, both axes logarithmic.

#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "cost/lower_bound.h"
#include "partitioner/planner.h"
#include "tests/support/paper_models.h"

using namespace graphpipe;

namespace {

struct Case {
  int layers, devices;
};
constexpr Case kCases[] = {{2, 32}, {4, 64}, {8, 128}, {18, 256}, {36, 512}, {90, 768}, {178, 1024}};
struct Line {
  const char* planner;
  int threads;
  const char* color;
};
constexpr Line kLines[] = {
    {"graphpipe", 1, "#1b6ca8"}, {"sequential", 1, "#8a8a8a"}, {"auto", 1, "#b5442c"}, {"auto", 2, "#e0a030"}};

struct Point {
  double operators, seconds;
};

const char* unit_of(const Line& line) { return line.threads == 1 ? "" : ", two threads, by the clock"; }

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

long peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

double place(double value, double low, double high, double from, double to) {
  return from + (to - from) * std::log10(value / low) / std::log10(high / low);
}

void draw(const char* path, const std::vector<std::vector<Point>>& lines) {
  std::ofstream out(path);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 400\" font-family=\"sans-serif\" "
         "font-size=\"13\">\n<rect width=\"640\" height=\"400\" fill=\"white\"/>\n";
  const auto x = [](double operators) { return place(operators, 100, 10000, 70, 600); };
  const auto y = [](double seconds) { return place(seconds, 0.001, 10, 350, 30); };
  for (double operators : {100.0, 1000.0, 10000.0})
    out << "<line x1=\"" << x(operators) << "\" y1=\"30\" x2=\"" << x(operators) << "\" y2=\"350\" stroke=\"#ddd\"/>"
        << "<text x=\"" << x(operators) << "\" y=\"370\" text-anchor=\"middle\">" << operators << "</text>\n";
  for (double seconds : {0.001, 0.01, 0.1, 1.0, 10.0})
    out << "<line x1=\"70\" y1=\"" << y(seconds) << "\" x2=\"600\" y2=\"" << y(seconds) << "\" stroke=\"#ddd\"/>"
        << "<text x=\"62\" y=\"" << y(seconds) + 4 << "\" text-anchor=\"end\">" << seconds << "</text>\n";
  out << "<text x=\"335\" y=\"392\" text-anchor=\"middle\">operators</text>\n<text x=\"70\" y=\"20\">processor seconds"
         "</text>\n";
  for (size_t line = 0; line < lines.size(); ++line) {
    out << "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" << kLines[line].color << "\" points=\"";
    for (const Point& point : lines[line]) out << x(point.operators) << ',' << y(point.seconds) << ' ';
    out << "\"/>\n<text x=\"90\" y=\"" << 50 + 18 * line << "\" fill=\"" << kLines[line].color << "\">"
        << kLines[line].planner << unit_of(kLines[line]) << "</text>\n";
  }
  out << "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::vector<Point>> lines(std::size(kLines));
  std::printf("planner threads operators devices processor_s clock_s peak_MB stages micro_batch step_s step/bound\n");
  for (const Case& size : kCases) {
    const ir::PlanGraph graph = tests::mmt(int64_t{16} * size.devices, 4, size.layers);
    const ir::Cluster cluster = tests::summit(size.devices);
    const double bound = cost::plan_bound(graph, cluster).step(graph.batch);
    for (size_t i = 0; i < std::size(kLines); ++i) {
      const double start = processor_seconds();
      const auto answer =
          partitioner::plan(kLines[i].planner, {.graph = &graph, .cluster = &cluster, .threads = kLines[i].threads});
      const double seconds = processor_seconds() - start;
      if (!answer.ok()) {
        std::printf("%s: %s\n", kLines[i].planner, to_line(answer.problems().front()).c_str());
        return 1;
      }
      const partitioner::PlanCandidate& best = answer->candidates.front();
      std::printf("%s %d %zu %d %.3f %.3f %ld %zu %lld %.4f %.3f\n", kLines[i].planner, kLines[i].threads,
                  graph.nodes.size(), size.devices, seconds, answer->search_seconds, peak_megabytes(),
                  best.assignment.choice.size(),
                  static_cast<long long>(best.assignment.choice[ir::StageId(0u)].micro_batch.count), best.step_seconds,
                  best.step_seconds / bound);
      std::fflush(stdout);
      lines[i].push_back({static_cast<double>(graph.nodes.size()),
                          std::max(kLines[i].threads == 1 ? seconds : answer->search_seconds, 0.001)});
    }
  }
  if (argc > 1) draw(argv[1], lines);
  return 0;
}

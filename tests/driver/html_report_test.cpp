// The HTML report: one page that loads nothing, shows every plan, and encodes what a model's author wrote.

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "driver/report/html/html.h"
#include "tests/driver/ask.h"
#include "tests/support/onnx_text.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace html_report_test {
namespace {

using graphpipe::testing::TemporaryFolder;

constexpr const char* kHostile = "</summary><script>alert(1)</script><img src=x onerror='alert(2)'>\"&amp;";

std::string read_page(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Two branches; the name of one operator is an attack.
void write_model(const TemporaryFolder& folder) {
  auto model = graphpipe::testing::parse_onnx_text(R"(g (float[N,8] x, float[N,8] z) => (float[N,8] y) {
  a = Tanh(x)
  b = Sigmoid(z)
  y = Add(a, b)
})");
  model.mutable_graph()->mutable_node(0)->set_name(kHostile);
  folder.write("model.onnx", model.SerializeAsString());
}

std::string make_plan(const TemporaryFolder& folder, const std::string& name, const std::string& policy,
                      const std::string& execution = "graph") {
  const Answer answer =
      ask({"plan", folder / "model.onnx", "--cluster", "default", "--devices", "3", "--stages", "3", "--batch", "8",
           "--micro-batch", "2", "--policy", policy, "--execute", execution, "-o", folder / name, "-q"});
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  return folder / name;
}

/// By how much the first plan's step is longer, as the report shows it.
std::string percent_more(const std::string& plan, const std::string& than) {
  const auto step = [](const std::string& of) {
    return ask({"simulate", of, "--json"}).object()["simulated_step"].get<double>();
  };
  char shown[32];
  std::snprintf(shown, sizeof shown, "%+.1f %%", 100 * (step(plan) / step(than) - 1));
  return shown;
}

}  // namespace

TEST_CASE("a report shows stages, timeline, idle time and memory, runs nothing and encodes names") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string plan = make_plan(folder, "plan.json", "inference");
  REQUIRE(ask({"report", plan, "-o", folder / "report.html"}).code == 0);
  const std::string page = read_page(folder / "report.html");
  CHECK(page.starts_with("<!DOCTYPE html>"));
  CHECK(count(page, "<svg") == 2 + 3 + 8 + 3);  // stages, timeline, three devices' memory, causes, bars of idle time
  CHECK(count(page, "<svg") == count(page, "</svg>"));
  CHECK(count(page, "<p id=\"stage-") == 3);
  CHECK(count(page, "href=\"#stage-1\"") == 2);
  CHECK(count(page, "default-src 'none'") == 1);
  for (const char* never : {"<script", "onerror='", "<img", "http://", "src=\""})
    CHECK(count(page, never) ==
          (std::string(never) == "http://" ? count(page, "xmlns=\"http://www.w3.org/2000/svg\"") : 0));
  CHECK(holds(page, "&lt;script&gt;alert(1)"));
  CHECK(count(page, "class=\"mark\">assumed") >= 1);
}

TEST_CASE("names are cut to the width that they have") {
  CHECK(driver::fitted("text.layers", 200, 11) == "text.layers");
  const std::string wide(100, 'W'), narrow(100, 'i');
  CHECK(driver::fitted(wide, 200, 11).size() < driver::fitted(narrow, 200, 11).size());
  for (const std::string& name : {wide, narrow, std::string("ab")})
    for (const double width : {0.0, 10.0, 40.0, 1e9}) {
      const std::string shown = driver::fitted(name, width, 10);
      CHECK((shown == name || shown.ends_with("...")));
      CHECK(shown.size() <= std::max<size_t>(name.size(), 3));
    }
}

TEST_CASE("the graph of stages alone is an SVG or a graph of Graphviz, of one plan") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string plan = make_plan(folder, "plan.json", "inference");
  REQUIRE(ask({"report", plan, "--format", "svg", "-o", folder / "plan.svg"}).code == 0);
  const std::string svg = read_page(folder / "plan.svg");
  CHECK(svg.starts_with("<svg xmlns"));
  CHECK(count(svg, "<g>") == 3);
  CHECK(count(svg, "</g>") == 3);
  CHECK_FALSE(holds(svg, "<a "));
  REQUIRE(ask({"report", plan, "--format", "dot", "-o", folder / "plan.dot"}).code == 0);
  const std::string dot = read_page(folder / "plan.dot");
  CHECK(dot.starts_with("digraph stages {"));
  CHECK(count(dot, " [label=\"stage ") == 3);
  CHECK(count(dot, " -> ") == 2);
  CHECK(ask({"report", plan, plan, "--format", "dot", "-o", folder / "two.dot"}).code == 2);
}

TEST_CASE("what decisions are worth is the simulated step with each one taken back") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string plan = make_plan(folder, "plan.json", "inference"), chain = folder / "chain.json";
  REQUIRE(ask({"report", plan, "-o", folder / "report.html"}).code == 0);
  const std::string page = read_page(folder / "report.html");
  CHECK(holds(page, "stages one after the other, as a chain"));
  CHECK_FALSE(holds(page, "without replication"));
  REQUIRE(ask({"plan", folder / "model.onnx", "--plan", plan, "--execute", "chain", "--cluster", "default", "--devices",
               "3", "--batch", "8", "--policy", "inference", "-o", chain, "-q"})
              .code == 0);
  CHECK(holds(page, percent_more(chain, plan)));
  const auto step = [](const std::string& of, const std::string& execution) {
    const Answer answer = ask({"simulate", of, "--execute", execution, "--json"});
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    return answer.object()["simulated_step"].get<double>();
  };
  for (const char* execution : {"graph", "chain"}) CHECK(step(plan, execution) == step(chain, execution));
  CHECK(step(plan, "chain") > step(plan, "graph"));
}

TEST_CASE("what a policy is worth is what the same stages take under another") {
  const TemporaryFolder folder;
  const std::string model = data_path("models/dlrm/model.onnx");
  const auto planned = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", model,    "--cluster",       "default", "--devices",   "2", "--batch",
                                      "16",   "--loss", "bce:logit,click", "-o",      folder / name, "-q"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = ask(words);
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    return folder / name;
  };
  const std::string plan = planned("plan.json", {"--planner", "sequential", "--stages", "2", "--micro-batch", "2"});
  auto stages = nlohmann::ordered_json::parse(read_page(plan));
  stages.erase("schedule");
  std::ofstream(folder / "stages.json") << stages;
  const std::string gpipe = planned("gpipe.json", {"--plan", folder / "stages.json", "--policy", "gpipe"});
  REQUIRE(ask({"report", plan, "-o", folder / "report.html"}).code == 0);
  const std::string page = read_page(folder / "report.html");
  const size_t row = page.find("policy gpipe</th>");
  REQUIRE(row != std::string::npos);
  CHECK_MESSAGE(page.substr(row, page.find("</tr>", row) - row).find(percent_more(gpipe, plan)) != std::string::npos,
                percent_more(gpipe, plan));
}

TEST_CASE("several plans are compared, and a log of a run stands beside what was simulated") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string first = make_plan(folder, "first.json", "inference"),
                    second = make_plan(folder, "second.json", "inference");
  REQUIRE(ask({"report", first, second, "-o", folder / "both.html"}).code == 0);
  const std::string both = read_page(folder / "both.html");
  CHECK(holds(both, "href=\"#plan-1\""));
  CHECK(count(both, "<h2 id=\"plan-") == 2);
  CHECK(count(both, "id=\"plan-1-stage-0\"") == 1);
  CHECK_FALSE(holds(both, "inference, as a chain"));
  const std::string chain = make_plan(folder, "chain.json", "inference", "chain");
  REQUIRE(ask({"report", first, chain, "-o", folder / "chain.html"}).code == 0);
  CHECK(holds(read_page(folder / "chain.html"), "<td>inference, as a chain</td>"));
  // As `run --log` writes rows (runtime/training/step_log.h); the last is not whole yet.
  constexpr const char* kEnd = R"(, "samples_per_second": 0.5, "gradient_norm": null, "anomaly": null})";
  std::ofstream log(folder / "log.jsonl");
  for (const char* begin : {R"({"step": 1, "loss": 2.0, "seconds": 9.0)", R"({"step": 2, "loss": 2.0, "seconds": 8.0)",
                            R"({"step": 3, "loss": 2.0, "seconds": 0.25)"})
    log << begin << kEnd << "\n";
  log << R"({"step": 4, "loss": 2.0, "seconds": 77)" << std::flush;
  REQUIRE(ask({"report", first, "-o", folder / "one.html", "--measured", folder / "log.jsonl"}).code == 0);
  const std::string one = read_page(folder / "one.html");
  CHECK(holds(one, "measured</span><b>250 ms</b>"));
  CHECK(holds(one, ">this plan, measured</span>"));
  CHECK(ask({"report", first, second, "-o", folder / "x.html", "--measured", folder / "log.jsonl"}).code == 2);
  CHECK(ask({"report", first, "-o", folder / "x.html", "--measured", first}).code == 3);
  const auto misplaced = ask({"report", first, folder / "log.jsonl", "-o", folder / "x.html"});
  CHECK(misplaced.code == 2);
  CHECK(holds(misplaced.err, "pass the log of a run with --measured"));
}

TEST_CASE("a sweep's table is a page: a picture, what each choice is worth, and every plan, names encoded") {
  const TemporaryFolder folder;
  folder.write("table.json", R"([
 {"devices":"2","planner":"a<b>","simulated_step":0.5,"gap":0.1,"limit":"compute","complete":true,"error":""},
 {"devices":"2","planner":"sequential","simulated_step":1.0,"gap":null,"limit":"","complete":true,"error":""},
 {"devices":"4","planner":"a<b>","simulated_step":0.25,"gap":0.1,"limit":"compute","complete":true,"error":""},
 {"devices":"4","planner":"sequential","simulated_step":null,"limit":"","complete":true,"error":"no <i>plan</i>"}
])");
  for (const std::string& input : {folder / "table.json", folder / ""}) {
    const Answer answer = ask({"report", input, "-o", folder / "page.html"});
    CAPTURE(answer.err);
    REQUIRE(answer.code == 0);
    const std::string page = read_page(folder / "page.html");
    CHECK(page.find("4 plans, 1 of them without a plan") != std::string::npos);
    CHECK(page.find("The shortest step is 250 ms") != std::string::npos);
    CHECK(page.find("a&lt;b&gt;") != std::string::npos);
    CHECK(page.find("a<b>") == std::string::npos);
    CHECK(page.find("<i>plan") == std::string::npos);
    CHECK(count(page, "<svg") == 1);
    CHECK(count(page, "<script") == 0);
    // Of planners in two devices the first is twice as fast; with four only one has a plan.
    CHECK(page.find("<th scope=\"row\">sequential</th><td>0 of 1</td><td>2.000</td>") != std::string::npos);
  }
  CHECK(ask({"report", folder / "table.json", folder / "table.json", "-o", folder / "x.html"}).code == 2);
  CHECK(ask({"report", folder / "table.json", "-o", folder / "table.json"}).code == 2);
  for (const char* bad : {"[]", "[1]", "[{\"devices\":2}]", "[{\"devices\":\"2\"},{}]", "[{\"simulated_step\":\"1\"}]",
                          "[{\"a\":\"1\"},{\"b\":\"1\"}]"}) {
    CAPTURE(bad);
    folder.write("table.json", bad);
    CHECK(ask({"report", folder / "table.json", "-o", folder / "x.html"}).code == 3);
  }
}

TEST_CASE("a sweep's page does not replace what the sweep keeps") {
  const TemporaryFolder folder;
  folder.write("sweep/table.json", R"([{"devices":"2","simulated_step":0.5}])");
  folder.write("sweep/cells.jsonl", "kept");
  const Answer answer = ask({"report", folder / "sweep", "-o", folder / "sweep/cells.jsonl"});
  CHECK(answer.code == 2);
  std::string kept;
  std::ifstream(folder / "sweep/cells.jsonl") >> kept;
  CHECK(kept == "kept");
}

TEST_CASE("a sweep's table that is named beside plans is refused by its own name") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string plan = make_plan(folder, "plan.json", "inference");
  folder.write("sweep/table.json", R"([{"devices":"2","simulated_step":0.5}])");
  const Answer answer = ask({"report", plan, folder / "sweep", "-o", folder / "x.html"});
  CHECK(answer.code == 2);
  CHECK(holds(answer.err, "'" + (folder / "sweep") + "': it is the table of a sweep"));
}

TEST_CASE("a report overwrites neither its plan nor its model, and bad plans are refused") {
  const TemporaryFolder folder;
  write_model(folder);
  const std::string plan = make_plan(folder, "plan.json", "inference");
  CHECK(ask({"report", plan, "-o", plan}).code == 2);
  CHECK(ask({"report", plan, "-o", folder / "model.onnx"}).code == 2);
  CHECK(ask({"report", folder / "nowhere.json", "-o", folder / "x.html"}).code == 3);
}

}  // namespace html_report_test

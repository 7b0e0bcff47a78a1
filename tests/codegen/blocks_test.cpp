// Layers that a model repeats become blocks, which are compiled once.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "codegen/slot_layout.h"
#include "codegen/split_function.h"
#include "codegen/stage_library.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using codegen::PartRange;

namespace {

constexpr size_t kOpsPerLayer = 8;

/// x + w * tanh(sigmoid(relu(...))) over and over, behind a few nodes of another kind. `masked`: all layers read one
/// value that is computed before them.
/// `tied`: each weight is that of two layers.
ir::Graph chain(size_t layers, bool masked = false, bool tied = false) {
  GraphMaker make;
  auto x = make.input("x", {batch(), size(4)});
  const auto mask = make.node("Exp", {x});
  x = make.node("Sub", {make.node("Sqrt", {mask}), x});
  std::vector<ir::ValueId> weights;
  for (size_t layer = 0; layer < layers; ++layer) {
    if (!tied || layer < layers / 2) weights.push_back(make.weight(text("w", layer), {size(4)}));
    const auto weight = weights[layer % weights.size()];
    auto y = make.node("Mul", {x, weight});
    for (const char* op : {"Relu", "Sigmoid", "Tanh", "Exp", "Neg"}) y = make.node(op, {y});
    y = make.node(masked ? "Mul" : "Add", {y, masked ? mask : y});
    x = make.node("Add", {x, y});
  }
  make.output(make.node("Exp", {x}), "y");
  return std::move(make.graph);
}

std::vector<codegen::Step> forward_steps(const ir::Graph& graph) {
  std::vector<codegen::Step> steps;
  for (const ir::NodeId node : graph.node_ids()) steps.push_back({node, {}, {}});
  return steps;
}

struct Stage {
  ir::Graph graph;
  codegen::StageCut cut;
  codegen::SlotLayout layout;
};

struct ChainCut {
  bool masked = false;
  /// Weight gradients are computed in the function of the input gradients.
  bool joined = false;
  bool tied = false;
};

std::vector<Stage> stages_of_chain(size_t layers, size_t stage_count, ChainCut how = {}) {
  const ir::Graph graph = trained(chain(layers, how.masked, how.tied), "mse", "y");
  const ir::PlanGraph plan = plan_of(graph, 4);
  std::vector<size_t> stage_of;
  for (size_t i = 0; i < plan.nodes.size(); ++i) stage_of.push_back(i * stage_count / plan.nodes.size());
  const auto stages = stages_of(plan, stage_of, 4);
  REQUIRE(stages.ok());
  IdSet<ir::StageId> joined(stage_count);
  for (const ir::StageId id : stages->stage_ids())
    if (how.joined) joined.insert(id);
  const auto cuts = codegen::cut_stages(graph, plan, *stages, joined);
  REQUIRE(cuts.ok());
  std::vector<Stage> result;
  for (const ir::StageId id : stages->stage_ids())
    result.push_back({graph, (*cuts)[id], codegen::lay_out_slots(graph, (*cuts)[id])});
  return result;
}

/// The files of all stages, by path, and those of their blocks.
std::map<std::string, std::string> files_of(const std::vector<Stage>& stages,
                                            const codegen::StageTextOptions& options = {}) {
  codegen::BlockTable blocks;
  std::map<std::string, std::string> files;
  for (size_t i = 0; i < stages.size(); ++i)
    for (const codegen::SourceFile& file : codegen::write_stage_functions(
             stages[i].graph, ir::StageId(i), stages[i].cut, stages[i].layout, options, blocks))
      files[file.path] = file.text;
  for (const codegen::SourceFile& file : blocks.files("")) files[file.path] = file.text;
  return files;
}

size_t count_blocks(const std::map<std::string, std::string>& files) {
  size_t count = 0;
  for (const auto& [path, text] : files) count += path.starts_with("blocks/") && path.ends_with(".cpp");
  return count;
}

std::set<std::string> called_by(const std::string& code) {
  std::set<std::string> blocks;
  const std::regex call("blocks::block[0-9]+");
  for (std::sregex_iterator at(code.begin(), code.end(), call), end; at != end; ++at) blocks.insert(at->str());
  return blocks;
}

/// With values named by first mention and without comments: what a function does.
std::string normal_form(const std::string& body) {
  const std::string code = std::regex_replace(body, std::regex("  // [^\n]*"), "");
  std::map<std::string, size_t> number_of;
  std::string result;
  const std::regex value(R"(\bv[0-9]+\b)");
  auto from = code.begin();
  for (std::sregex_iterator at(code.begin(), code.end(), value), end; at != end; ++at) {
    result.append(from, (*at)[0].first);
    result += text("v", number_of.emplace(at->str(), number_of.size()).first->second);
    from = (*at)[0].second;
  }
  return result.append(from, code.end());
}

std::string with_table(std::string body, const std::vector<size_t>& table) {
  for (size_t i = table.size(); i-- > 0;)
    body = std::regex_replace(body, std::regex(text("\\[p\\[", i, "\\]\\]")), text("[", table[i], "]"));
  return body;
}

std::vector<size_t> numbers_in(const std::string& list) {
  std::vector<size_t> numbers;
  const std::regex number("[0-9]+");
  for (std::sregex_iterator at(list.begin(), list.end(), number), end; at != end; ++at)
    numbers.push_back(std::stoul(at->str()));
  return numbers;
}

/// A part of a stage's function as the function calls it.
struct Call {
  /// Gradients that it adds to, and those that are told to be complete behind it.
  std::set<size_t> sums, complete;
};

std::vector<Call> calls_in(const std::string& code, const std::map<std::string, std::string>& files) {
  std::map<std::string, std::vector<size_t>> tables;
  const std::regex table(R"(int32_t (\w+)\[\] = \{([^}]*)\})");
  for (std::sregex_iterator at(code.begin(), code.end(), table), end; at != end; ++at)
    tables[(*at)[1]] = numbers_in((*at)[2]);
  std::vector<Call> calls;
  const std::regex call(R"((\w+)\(a, t(, (\w+))?\);|note_complete\((\w+)\))"), sum(R"(gradients\[([0-9]+)\])");
  for (std::sregex_iterator at(code.begin(), code.end(), call), end; at != end; ++at) {
    if ((*at)[4].matched) {
      REQUIRE_FALSE(calls.empty());
      const std::vector<size_t>& complete = tables.at((*at)[4]);
      calls.back().complete.insert(complete.begin(), complete.end());
      continue;
    }
    const std::string folder = (*at)[3].matched ? "blocks/" : "stages/stage0/";
    const std::string body = with_table(files.at(text(folder, (*at)[1].str(), ".cpp")),
                                        (*at)[3].matched ? tables.at((*at)[3]) : std::vector<size_t>());
    Call& made = calls.emplace_back();
    for (std::sregex_iterator found(body.begin(), body.end(), sum); found != end; ++found)
      made.sums.insert(std::stoul((*found)[1]));
  }
  return calls;
}

}  // namespace

TEST_CASE("ranges cover all steps in order, none is too long, and repeated ones do the same") {
  for (const size_t layers : {1, 3, 20, 41})
    for (const size_t max_steps : {7, 30, 100}) {
      CAPTURE(layers);
      CAPTURE(max_steps);
      const ir::Graph graph = chain(layers);
      const std::vector<codegen::Step> steps = forward_steps(graph);
      size_t next = 0;
      for (const PartRange& range : codegen::part_ranges(graph, steps, max_steps)) {
        CHECK(range.begin == next);
        CHECK(range.end > range.begin);
        CHECK(range.end - range.begin <= max_steps);
        next = range.end;
      }
      CHECK(next == steps.size());
    }
}

TEST_CASE("a function of few steps stays one, one of many is cut between its layers") {
  const ir::Graph graph = chain(20);
  const std::vector<codegen::Step> steps = forward_steps(graph);
  CHECK(codegen::part_ranges(graph, std::span(steps).first(50), 100) == std::vector<PartRange>{{0, 50, false}});
  size_t repeated = 0;
  for (const PartRange& range : codegen::part_ranges(graph, steps, 100)) {
    if (!range.repeats) continue;
    CHECK((range.end - range.begin) % kOpsPerLayer == 0);
    CHECK_MESSAGE((range.begin - 3) % kOpsPerLayer == 0, "only x crosses there");
    repeated += range.end - range.begin;
  }
  CHECK(repeated >= 15 * kOpsPerLayer);
}

TEST_CASE("a block with its table is the function that it stands for") {
  for (const bool masked : {false, true}) {
    const Stage stage = stages_of_chain(20, 1, {.masked = masked}).front();
    const std::vector<codegen::Step>* phases[] = {&stage.cut.steps.forward, &stage.cut.steps.input_gradient,
                                                  &stage.cut.steps.weight_gradient};
    const codegen::FunctionPlaces* places[] = {&stage.layout.forward, &stage.layout.input_gradient,
                                               &stage.layout.weight_gradient};
    for (size_t phase = 0; phase < 3; ++phase) {
      const std::vector<codegen::Step>& steps = *phases[phase];
      const auto split =
          codegen::split_function(stage.graph, steps, *places[phase], codegen::part_ranges(stage.graph, steps, 60));
      for (const codegen::FunctionPart& part : split.parts) {
        codegen::FunctionOptions options{.loads = part.loads, .stores = part.stores, .clears = part.clears};
        for (size_t i = 0; i < stage.cut.params.size(); ++i) options.weight_index.emplace(stage.cut.params[i], i);
        const std::string plain = codegen::write_function(stage.graph, part.steps, options).body;
        codegen::BlockNaming naming;
        options.naming = &naming;
        const std::string block = codegen::write_function(stage.graph, part.steps, options).body;
        CHECK(block.find("v0") != std::string::npos);
        CHECK(normal_form(with_table(block, naming.table())) == normal_form(plain));
      }
    }
  }
}

TEST_CASE("what is compiled does not grow with the layers, and stages share it") {
  const auto few = files_of(stages_of_chain(40, 1)), many = files_of(stages_of_chain(80, 1));
  CHECK(count_blocks(few) > 0);
  CHECK(count_blocks(many) == count_blocks(few));
  CHECK_MESSAGE(many.size() <= few.size() + 1, "the rest beside the blocks may need another file");
  const auto cut = files_of(stages_of_chain(80, 2));
  const std::set<std::string> first = called_by(cut.at("stages/stage0/forward.cpp"));
  const std::set<std::string> second = called_by(cut.at("stages/stage1/forward.cpp"));
  CHECK(std::ranges::any_of(first, [&](const std::string& block) { return second.contains(block); }));
}

TEST_CASE("a backward tells of a gradient behind its last share, and of all but those of its last part") {
  for (const bool joined : {false, true})
    for (const bool tied : {false, true}) {
      CAPTURE(joined);
      CAPTURE(tied);
      const std::vector<Stage> stages = stages_of_chain(40, 1, {.joined = joined, .tied = tied});
      const auto files = files_of(stages, {.tells_gradients = true});
      std::set<size_t> told, summed, of_last_part;
      for (const char* name : {"input_gradient", "weight_gradient"}) {
        const auto file = files.find(text("stages/stage0/", name, ".cpp"));
        if (file == files.end()) continue;
        for (const Call& call : calls_in(file->second, files)) {
          for (const size_t param : call.sums) CHECK_FALSE(told.contains(param));
          summed.insert(call.sums.begin(), call.sums.end());
          told.insert(call.complete.begin(), call.complete.end());
          of_last_part = call.sums;
        }
      }
      CHECK(summed.size() == (tied ? 20 : 40));
      CHECK(told.size() + of_last_part.size() == summed.size());
      CHECK(of_last_part.size() < summed.size() / 2);
    }
}

TEST_CASE("only stages with replicas tell of gradients") {
  for (const auto& [path, code] : files_of(stages_of_chain(40, 1))) CHECK(code.find("listener") == std::string::npos);
}

TEST_CASE("a block takes the number of a random stream from its table, as the key's type") {
  codegen::BlockNaming naming;
  CHECK(naming.number(7) == "static_cast<uint32_t>(p[0])");
  CHECK(naming.number(9) == "static_cast<uint32_t>(p[1])");
  CHECK(naming.number(7) == "static_cast<uint32_t>(p[0])");
  CHECK(naming.table() == std::vector<size_t>{7, 9});
}

TEST_CASE("a small model has no blocks") { CHECK(count_blocks(files_of(stages_of_chain(3, 1))) == 0); }

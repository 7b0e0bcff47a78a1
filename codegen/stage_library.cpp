#include "codegen/stage_library.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/autograd_oracle.h"
#include "codegen/last_shares.h"
#include "codegen/lifetimes.h"
#include "codegen/split_function.h"
#include "codegen/table_text.h"
#include "ops/op_def.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ParamId;
using ir::StageId;

constexpr std::string_view kArguments = "const graphpipe::runtime::StageArguments& a";
constexpr std::string_view kPartArguments =
    "const graphpipe::runtime::StageArguments& a, [[maybe_unused]] at::Tensor* t";
constexpr std::string_view kBlockArguments =
    "const graphpipe::runtime::StageArguments& a, [[maybe_unused]] at::Tensor* t, [[maybe_unused]] const int32_t* p";

std::optional<ir::Attributes> attributes_in_evaluation(const Graph& graph, const Step& step) {
  const ir::Node& node = graph.node(step.node);
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->in_evaluation == nullptr) return std::nullopt;
  return entry->in_evaluation(ops::NodeView(graph, node));
}

class StageWriter {
 public:
  StageWriter(const Graph& graph, StageId stage, const StageCut& cut, const SlotLayout& layout,
              const StageTextOptions& options, BlockTable& blocks)
      : graph_(graph),
        stage_(stage),
        cut_(cut),
        layout_(layout),
        first_line_(options.first_line),
        blocks_(blocks),
        marks_(options.marks),
        shared_(shared_values(graph)) {
    if (options.tells_gradients) complete_after_ = steps_to_last_share(graph, cut);
    for (size_t i = 0; i < cut.params.size(); ++i) weight_index_.emplace(cut.params[i], i);
    for (const ir::GradientShare& share : cut.steps.shares)
      accumulations_.push_back({share.value, {Place::Array::kGradient, weight_index_.at(share.param)}});
  }

  std::vector<SourceFile> run() {
    if (functions_of(cut_).forward) write_phase(graph_, "forward", cut_.steps.forward, layout_.forward);
    if (evaluates_otherwise(graph_, cut_)) write_evaluation();
    phase_ = ir::Phase::kInputGradient;
    if (functions_of(cut_).input_gradient)
      write_phase(graph_, "input_gradient", cut_.steps.input_gradient, layout_.input_gradient);
    phase_ = ir::Phase::kWeightGradient;
    if (cut_.by_autograd) write_autograd();
    else if (functions_of(cut_).weight_gradient)
      write_phase(graph_, "weight_gradient", cut_.steps.weight_gradient, layout_.weight_gradient);
    write_header();
    return std::move(files_);
  }

 private:
  std::string name_space() const { return text("pipeline::stage", stage_); }

  void add_file(std::string_view name, std::string body) {
    files_.push_back({text(stage_folder(stage_), "/", name), first_line_ + std::move(body)});
  }

  void declare(std::string_view name, std::string_view arguments) {
    declarations_ += text("void ", name, "(", arguments, ");\n");
  }

  // Writes the forward once more, with the attributes that its nodes have in evaluation.
  void write_evaluation() {
    Graph graph = graph_;
    for (const Step& step : cut_.steps.forward)
      if (std::optional<ir::Attributes> attributes = attributes_in_evaluation(graph_, step))
        graph.node(step.node).attributes = *std::move(attributes);
    MarkTable* const marks = std::exchange(marks_, nullptr);
    write_phase(graph, "evaluate", cut_.steps.forward, layout_.evaluation);
    marks_ = marks;
  }

  void write_phase(const Graph& graph, const std::string& name, const std::vector<Step>& steps,
                   const FunctionPlaces& places) {
    find_overwriting(graph, steps, places);
    const std::vector<PartRange> ranges = part_ranges(graph, steps, kMaxOpsPerFile);
    const SplitFunction split = split_function(graph, steps, places, ranges);
    declare(name, kArguments);
    if (split.parts.size() == 1) {
      const FunctionText function = text_of(graph, kArguments, split.parts.front(), nullptr);
      add_file(name + ".cpp", file_text(include_lines(function.headers), function.definition(name)));
      return;
    }
    std::string tables, calls;
    for (size_t part = 0; part < split.parts.size(); ++part) {
      const std::string part_name = text(name, "_", part);
      write_part(graph, part_name, split.parts[part], tables, calls);
      if (part + 1 < split.parts.size()) write_note(part_name, ranges[part], tables, calls);
    }
    // Tensors that one part hands on to a later one.
    const std::string handed_on = text("  at::Tensor t[", std::max<size_t>(1, split.handed_on), "];\n");
    std::string includes = "#include <ATen/core/Tensor.h>\n\n";
    if (marks_ == nullptr && std::ranges::any_of(split.parts, &FunctionPart::repeats))
      includes += text("#include \"", kBlocksFolder, "/functions.h\"\n");
    add_file(name + ".cpp",
             file_text(includes, tables + text("void ", name, "(", kArguments, ") {\n", handed_on, calls, "}\n")));
  }

  /// None where LibTorch's autograd goes through the forward: it keeps operands.
  void find_overwriting(const Graph& graph, const std::vector<Step>& steps, const FunctionPlaces& places) {
    overwriting_ = {};
    if (cut_.by_autograd) return;
    FunctionOptions options;
    options.loads = places.loads;
    options.stores = places.stores;
    options.accumulations = accumulations_;
    options.shared = &graph == &graph_ ? &shared_ : nullptr;  // an evaluation has other attributes
    overwriting_ = overwriting_nodes(graph, steps, options);
  }

  std::string file_text(std::string_view includes, std::string_view body) const {
    return text(includes, "#include \"", stage_folder(stage_), "/functions.h\"\n\nnamespace ", name_space(), " {\n\n",
                body, "\n}  // namespace ", name_space(), "\n");
  }

  /// Writes a repeated part as a call of a shared block with a table of its places, any other part as a function of the
  /// stage. With marks a part names the nodes that it times, so it cannot be shared.
  void write_part(const Graph& graph, const std::string& name, const FunctionPart& part, std::string& tables,
                  std::string& calls) {
    if (!part.repeats || marks_ != nullptr) {
      const FunctionText function = text_of(graph, kPartArguments, part, nullptr);
      declarations_ += function.declaration(name);
      add_file(name + ".cpp", file_text(include_lines(function.headers), function.definition(name)));
      calls += text("  ", name, "(a, t);\n");
      return;
    }
    BlockNaming naming;
    const std::string block = blocks_.name_of(text_of(graph, kBlockArguments, part, &naming));
    const std::string table = text("k_", name);
    tables += numbers_array_text(table, naming.table()) + "\n";
    calls +=
        text("  ", block, "(a, t, ", table, ");  // n", part.steps.front().node, " to n", part.steps.back().node, "\n");
  }

  /// Tells the listener of the gradients that the part has completed.
  void write_note(const std::string& part, const PartRange& range, std::string& tables, std::string& calls) const {
    if (phase_ == ir::Phase::kForward) return;
    const bool is_second = phase_ == ir::Phase::kWeightGradient;
    const size_t first = is_second ? cut_.steps.input_gradient.size() : 0;
    std::vector<size_t> complete;
    for (size_t i = 0; i < complete_after_.size(); ++i) {
      const size_t after = complete_after_[i];
      // The function of weight gradients may run alone, so that it tells of the other's as well.
      const bool is_new = range.begin == 0 || after > first + range.begin;
      // Without shares it is complete from the start.
      if (graph_.param(cut_.params[i]).trainable && after <= first + range.end && is_new) complete.push_back(i);
    }
    if (complete.empty()) return;
    const std::string table = text("k_", part, "_complete");
    tables += numbers_array_text(table, complete) + "\n";
    calls += text("  if (a.listener != nullptr) a.listener->note_complete(", table, ");\n");
  }

  FunctionText text_of(const Graph& graph, std::string_view arguments, const FunctionPart& part, Naming* naming) {
    FunctionOptions options;
    options.parameters = arguments;
    options.loads = part.loads;
    options.stores = part.stores;
    options.clears = part.clears;
    options.weight_index = weight_index_;
    options.accumulations = accumulations_;
    options.overwriting = &overwriting_;
    options.marks = marks_;
    options.phase = phase_;
    options.naming = naming;
    return write_function(graph, part.steps, options);
  }

  void write_autograd() {
    declare("weight_gradient", kArguments);
    add_file(
        "weight_gradient.cpp",
        text("#include \"", stage_folder(stage_), "/functions.h\"\n", autograd_includes(), "\nnamespace ", name_space(),
             " {\n\n", autograd_function(graph_, cut_, layout_), "\n}  // namespace ", name_space(), "\n"));
  }

  void write_header() {
    add_file("functions.h",
             text("#pragma once\n#include \"runtime/program.h\"\n\nnamespace ", name_space(), " {\n\n", declarations_,
                  "\nextern const graphpipe::runtime::StageEntry entry;\n\n}  // namespace ", name_space(), "\n"));
  }

  const Graph& graph_;
  StageId stage_;
  const StageCut& cut_;
  const SlotLayout& layout_;
  const std::string& first_line_;
  BlockTable& blocks_;
  MarkTable* marks_;
  std::vector<size_t> complete_after_;     // steps, by parameter; empty: nobody is told
  ir::Phase phase_ = ir::Phase::kForward;  // of the function that is being written
  std::map<ParamId, size_t> weight_index_;
  std::vector<Accumulation> accumulations_;
  IdSet<ir::ValueId> shared_;
  IdSet<ir::NodeId> overwriting_;  // of the function that is being written
  std::string declarations_;
  std::vector<SourceFile> files_;
};

}  // namespace

bool evaluates_otherwise(const Graph& graph, const StageCut& cut) {
  return std::ranges::any_of(cut.steps.forward,
                             [&](const Step& step) { return attributes_in_evaluation(graph, step).has_value(); });
}

bool exchanges_sums(const Graph& graph, const StageCut& cut) {
  return std::ranges::any_of(cut.steps.forward, [&](const Step& step) {
    const ir::Node& node = graph.node(step.node);
    const auto sums = ops::find_op(node.op)->sums_over_replicas;
    return sums != nullptr && sums(ops::NodeView(graph, node));
  });
}

StageFunctions functions_of(const StageCut& cut) {
  return {.forward = !cut.steps.forward.empty(),
          .input_gradient = !cut.steps.input_gradient.empty() || !passed_gradients(cut).empty(),
          .weight_gradient = cut.by_autograd || !cut.steps.weight_gradient.empty()};
}

std::string stage_folder(StageId stage) { return text("stages/stage", stage); }

std::vector<SourceFile> write_stage_functions(const Graph& graph, StageId stage, const StageCut& cut,
                                              const SlotLayout& layout, const StageTextOptions& options,
                                              BlockTable& blocks) {
  return StageWriter(graph, stage, cut, layout, options, blocks).run();
}

}  // namespace graphpipe::codegen

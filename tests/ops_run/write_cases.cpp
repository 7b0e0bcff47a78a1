// Writes the examples of the op dictionary out:
//   write_cases sources FOLDER PARTS   as C++ files cases_<part>.cpp and cases.cpp, for the test program
//   write_cases json                   as JSON on standard output, for tests/data/make_op_reference.py
//
// A file is only written where its text changes: what changes no code of an op compiles nothing again.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "codegen/function_writer.h"
#include "codegen/mark_table.h"
#include "ops/infer_helpers.h"
#include "tests/ops_run/case_table.h"
#include "tests/ops_run/op_cases.h"
#include "tests/support/written_cases.h"

namespace graphpipe::ops_run {
namespace {

using nlohmann::json;

struct ExampleId {
  const ops::OpDef* row;
  size_t example;
};

std::vector<ExampleId> all_examples() {
  std::vector<ExampleId> result;
  for (const ops::OpDef* row : ops::all_ops()) {
    for (size_t i = 0; i < row->examples.size(); ++i) result.push_back({row, i});
  }
  return result;
}

// --- C++ ---

/// A List: its braces, and those of its items.
template <typename T>
std::string braced(const std::vector<T>& values) {
  std::ostringstream out;
  out << std::setprecision(17) << "{{";
  for (size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "" : ", ") << values[i];
  return out.str() + "}}";
}

std::string tensor_text(const ir::Value& value, const std::vector<double>& elements) {
  std::vector<std::string> dims;
  for (ir::Dim dim : value.type.shape) dims.push_back(text("{", dim.factor, ", ", dim.power, "}"));
  const int axis = value.batch == ir::BatchKind::kMixed ? -2 : value.batch_axis;
  return text("{ElementType{", static_cast<int>(value.type.dtype), "}, ", braced(dims), ", ", axis, ", ",
              braced(elements), "}");
}

/// Case::Step of each node.
std::string steps_text(const OpCase& made) {
  std::vector<std::string> steps;
  for (const ir::NodeId id : made.graph.node_ids()) {
    const ops::NodeView node(made.graph, made.graph.node(id));
    const ops::OpDef& row = *ops::find_op(node.node().op);
    double made = 0, largest = 0;
    for (size_t i = 0; i < node.output_count(); ++i) {
      const double bytes = ops::bytes_of(node.output(i), Samples(kCaseSamples));
      largest = std::max(largest, bytes);
      if (!ops::is_view(node)) made += bytes;
    }
    for (size_t i = 0; i < node.input_count(); ++i)
      if (node.has_input(i)) largest = std::max(largest, ops::bytes_of(node.input(i), Samples(kCaseSamples)));
    steps.push_back(text("{\"", row.name, "\", ", made, ", ", ops::work_of(row, node, Samples(kCaseSamples)).scratch,
                         ", ", largest, "}"));
  }
  return braced(steps);
}

bool owns_outputs(const OpCase& made) {
  if (!made.forward.valid()) return false;
  const ops::NodeView node(made.graph, made.graph.node(made.forward));
  const ops::OpDef& row = *ops::find_op(node.node().op);
  return row.owns_outputs != nullptr && row.owns_outputs(node);
}

/// The names of a case's functions.
struct Functions {
  std::string run = "nullptr", run_double = "nullptr", run_in_place = "nullptr";
};

std::string case_text(const OpCase& made, const Functions& functions) {
  std::vector<std::string> inputs, outputs;
  for (size_t i = 0; i < made.values.size(); ++i) {
    inputs.push_back(tensor_text(made.graph.value(made.graph.inputs()[i].value), made.values[i]));
  }
  for (size_t i = 0; i < made.outputs; ++i) {
    outputs.push_back(tensor_text(made.graph.value(made.graph.outputs()[i].value), {}));
  }
  const std::string problem = made.problem.empty() ? "nullptr" : CppLiteral::encode(ModelText(made.problem)).str();
  return text("    {\"", made.name, "\", ", problem, ", ", functions.run, ", ", functions.run_double, ",\n     ",
              braced(inputs), ",\n     ", braced(outputs), ",\n     ", braced(made.weighted_outputs), ", ",
              braced(made.weights), ", ", braced(made.differentiated), ", ", braced(made.updated), ", ",
              made.mixes_samples ? "true" : "false", ", ", steps_text(made), ", ", made.dependence, ", ", made.axis,
              ", ", owns_outputs(made) ? "true" : "false", ", ", functions.run_in_place, "},\n");
}

/// The text whose marks note memory instead of time.
std::string with_memory_marks(const std::string& code) {
  std::string result = code;
  for (const std::string_view name : {"begin_marks(", "mark("}) {
    const std::string wanted = text("graphpipe::runtime::", name);
    for (size_t at = result.find(wanted); at != std::string::npos; at = result.find(wanted, at))
      result.replace(at, wanted.size(), text("graphpipe::ops_run::", name));
  }
  return result;
}

/// The text without // comments, which name types.
std::string uncommented(const std::string& code) {
  std::istringstream lines(code);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += line.substr(0, line.find("//")) + "\n";
  return result;
}

/// One file of the test program: the functions of every parts-th example from `part` on, and their table. Adds what
/// it includes.
std::string part_text(size_t part, size_t parts, std::set<std::string>& all_headers) {
  std::set<std::string> headers;
  std::string functions, table;
  const std::vector<ExampleId> examples = all_examples();
  for (size_t i = part; i < examples.size(); i += parts) {
    const OpCase made = make_case(*examples[i].row, examples[i].example, ir::DType::kFloat32);
    const OpCase wide = make_case(*examples[i].row, examples[i].example, ir::DType::kFloat64);
    Functions names;
    if (const std::optional<ir::Graph> graph = make_overwriting_graph(*examples[i].row, examples[i].example)) {
      names.run_in_place = text("run_in_place_", i);
      const codegen::FunctionText function = codegen::write_whole_function(*graph);
      headers.insert(function.headers.begin(), function.headers.end());
      functions += function.definition(names.run_in_place) + "\n";
    }
    if (made.problem.empty()) {
      names.run = names.run_double = text("run_", i);
      codegen::MarkTable marks;
      const codegen::FunctionText single = codegen::write_whole_function(made.graph, &marks);
      const codegen::FunctionText twice = codegen::write_whole_function(wide.graph, &marks);
      headers.insert(single.headers.begin(), single.headers.end());
      functions += single.definition(names.run) + "\n";
      if (uncommented(single.body) != uncommented(twice.body)) {
        names.run_double += "_double";
        functions += twice.definition(names.run_double) + "\n";
      }
    }
    table += case_text(made, names);
  }
  all_headers.insert(headers.begin(), headers.end());
  return text(
      "// Written by write_cases from the examples of ops/.\n#include <limits>\n", codegen::include_lines(headers),
      "\n#include \"tests/ops_run/case_table.h\"\n#include \"tests/ops_run/memory_marks.h\"\n\nnamespace {\n\n",
      with_memory_marks(functions),
      "using graphpipe::runtime::ElementType;\n\nconstexpr graphpipe::ops_run::Case kCases[] = {\n", table,
      "};\n\n}  // namespace\n\nstd::span<const graphpipe::ops_run::Case> part_", part, "() { return kCases; }\n");
}

// --- JSON ---

json plain(const ir::AttributeValue& value) {
  if (const auto* shape = std::get_if<ir::Shape>(&value)) {
    json sizes = json::array();
    for (ir::Dim dim : *shape) sizes.push_back(dim.at(Samples(kCaseSamples)));
    return sizes;
  }
  return std::visit(
      [](const auto& each) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(each)>, ir::Shape>) return {};
        else return each;
      },
      value);
}

json case_json(const OpCase& made) {
  const ir::Node& node = made.graph.node(made.forward);
  json result = {{"name", made.name},
                 {"op", node.op},
                 {"attributes", json::object()},
                 {"inputs", json::array()},
                 {"outputs", made.outputs}};
  for (const auto& [name, value] : node.attributes) result["attributes"][name] = plain(value);
  for (ir::ValueId input : node.inputs) {
    if (!input.valid()) {
      result["inputs"].push_back(nullptr);
      continue;
    }
    const ir::TensorType& type = made.graph.value(input).type;
    result["inputs"].push_back(
        {{"dtype", ir::dtype_name(type.dtype)}, {"shape", plain(type.shape)}, {"values", made.values[input.index()]}});
  }
  return result;
}

int write_json() {
  json cases = json::array();
  for (const ExampleId& each : all_examples()) {
    const OpCase made = make_case(*each.row, each.example, ir::DType::kFloat32);
    if (made.forward.valid()) cases.push_back(case_json(made));
  }
  std::cout << cases.dump() << '\n';
  return 0;
}

int write_sources(const std::filesystem::path& folder, size_t parts) {
  std::filesystem::create_directories(folder);
  std::set<std::string> headers;
  for (size_t part = 0; part < parts; ++part) {
    tests::write_if_changed(folder / text("cases_", part, ".cpp"), part_text(part, parts, headers));
  }
  std::string lines;
  for (const std::string& header : headers) lines += header + "\n";
  tests::write_if_changed(folder / "headers.txt", lines);
  tests::write_if_changed(folder / "cases.cpp",
                          tests::case_list_text("tests/ops_run/case_table.h", "graphpipe::ops_run", parts));
  return 0;
}

}  // namespace
}  // namespace graphpipe::ops_run

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"json"}) return graphpipe::ops_run::write_json();
  if (arguments.size() == 3 && arguments[0] == "sources") {
    return graphpipe::ops_run::write_sources(arguments[1], std::strtoull(arguments[2].c_str(), nullptr, 10));
  }
  std::cerr << "usage: write_cases json | write_cases sources FOLDER PARTS\n";
  return 2;
}

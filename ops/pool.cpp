// Pools over one to three spatial axes. One axis is run as two, with a leading window of one.
//
// The kernels support equal pads of at most half the window. Other pads are written out: the input is padded (or
// sliced) to exactly the cells that the windows touch, with -infinity for a maximum, with zeros for an average, whose
// sums are then divided by the number of counted cells.

#include <algorithm>

#include "ops/emit_helpers.h"
#include "ops/example_helpers.h"
#include "ops/families.h"
#include "ops/gradient_helpers.h"
#include "ops/infer_helpers.h"
#include "ops/joined_rows.h"
#include "ops/norm_helpers.h"
#include "ops/spatial.h"
#include "wire/depthwise.h"

namespace graphpipe::ops {
namespace {

using Ints = std::vector<int64_t>;

/// Everything about a node that its checks and its call need; `shape` is that of x.
struct PoolForm {
  ir::Shape shape;
  Ints sizes;    // spatial, of x
  Ints outputs;  // spatial, of y
  Window window;
  bool rounds_up = false;
  bool counts_pads = false;
  /// Pads that the kernel does not support are written out: window.begin and window.end are then the padding of the
  /// input, and the kernel's own pads are 0.
  bool is_written_out = false;
  /// The counted cells of an average, before pads are written out.
  Ints begin, end;
};

bool is_global(const NodeView& node) { return node.node().op.starts_with("Global"); }

Result<PoolForm> pool_form(const NodeView& node, const ir::Shape& shape) {
  PoolForm form{.shape = shape};
  GP_TRY(form.sizes, spatial_sizes(node, shape));
  const Ints kernel = is_global(node) ? form.sizes : node.attributes().get_ints("kernel_shape");
  if (kernel.size() != form.sizes.size()) return bad_model(node, "has a kernel_shape of another rank");
  GP_TRY(form.window, window_of(node, kernel));
  form.rounds_up = node.attributes().get_int("ceil_mode", 0) != 0;
  form.counts_pads = node.attributes().get_int("count_include_pad", 0) != 0;
  form.begin = form.window.begin;
  form.end = form.window.end;
  form.is_written_out = !form.window.is_symmetric();
  for (size_t axis = 0; axis < form.sizes.size(); ++axis) {
    const int64_t count = position_count(form.window, axis, form.sizes[axis], form.rounds_up);
    if (count < 1) return bad_model(node, text("has an input smaller than its window on axis ", axis + 2));
    form.outputs.push_back(count);
    form.is_written_out |= form.begin[axis] > form.window.kernel[axis] / 2;
  }
  if (!form.is_written_out) return form;
  form.rounds_up = false;
  for (size_t axis = 0; axis < form.sizes.size(); ++axis) {
    const int64_t touched = (form.outputs[axis] - 1) * form.window.strides[axis] + form.window.span(axis);
    form.window.end[axis] = touched - form.sizes[axis] - form.begin[axis];
  }
  return form;
}

ir::Shape output_shape(const PoolForm& form) {
  ir::Shape shape = {form.shape[0], form.shape[1]};
  for (int64_t size : form.outputs) shape.push_back(ir::Dim::fixed(size));
  return shape;
}

/// Bytes of temporaries if pads are written out: x with its pads, and the counted cells of a plane, unpadded, padded,
/// and by window.
double written_out_bytes(const PoolForm& form, ir::DType dtype, Samples samples) {
  if (!form.is_written_out) return 0;
  ir::Shape padded = form.shape, cells = {ir::Dim::fixed(1), ir::Dim::fixed(1)};
  for (size_t axis = 0; axis < form.sizes.size(); ++axis) {
    padded[axis + 2].factor += form.window.begin[axis] + form.window.end[axis];
    cells.push_back(padded[axis + 2]);
  }
  return bytes_of({.type = {dtype, padded}}, samples) + 3 * bytes_of({.type = {dtype, cells}}, samples);
}

// --- pieces of the calls ---

struct PoolCall {
  Emitter& emitter;
  PoolForm form;
  bool is_line = form.sizes.size() == 1;

  std::string_view suffix() const { return form.sizes.size() == 3 ? "3d" : "2d"; }
  std::string header(std::string_view name) const { return text("ATen/ops/", name, ".h"); }
  /// One entry per axis of the kernel.
  std::string axes(Ints values, int64_t first_of_line) const {
    if (is_line) values.insert(values.begin(), first_of_line);
    return list(values);
  }
  std::string kernel_and_strides() const { return axes(form.window.kernel, 1) + ", " + axes(form.window.strides, 1); }
  std::string pads() const { return axes(form.is_written_out ? Ints(form.sizes.size(), 0) : form.window.begin, 0); }
  /// x as the kernel reads it.
  std::string x(const std::string& expression, const std::string& fill) const {
    return plane(form.is_written_out ? padded(emitter, expression, form.window.begin, form.window.end, fill)
                                     : expression);
  }
  std::string plane(const std::string& expression) const { return is_line ? expression + ".unsqueeze(2)" : expression; }
  std::string line(const std::string& expression) const { return is_line ? expression + ".squeeze(2)" : expression; }
  /// A placeholder for x in a backward call, which only uses its size.
  std::string x_shape(const std::string& gradient) const {
    ir::Shape shape = form.shape;
    for (size_t axis = 0; form.is_written_out && axis < form.sizes.size(); ++axis) {
      shape[axis + 2].factor += form.window.begin[axis] + form.window.end[axis];
    }
    if (is_line) shape.insert(shape.begin() + 2, ir::Dim::fixed(1));
    return shape_only(gradient, emitter.dims(shape));
  }
  /// Converts the gradient of the kernel's x to that of the node's x.
  std::string x_gradient(const std::string& expression) const {
    const std::string result = line(expression);
    if (!form.is_written_out) return result;
    return padded(emitter, result, negated(form.window.begin), negated(form.window.end));
  }
};

// --- MaxPool, GlobalMaxPool: outputs the maxima and the kernel's indices of them ---

Inferred infer_max_pool(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY(const PoolForm form, pool_form(node, node.input(0).type.shape));
  const ir::Shape shape = output_shape(form);
  return checked(node,
                 {make_value(node, {node.input(0).type.dtype, shape}), make_value(node, {ir::DType::kInt64, shape})});
}

double window_cells(const PoolForm& form) {
  double cells = 1;
  for (int64_t size : form.window.kernel) cells *= static_cast<double>(size);
  return cells;
}
Work pool_work(const NodeView& node, Samples samples) {
  const PoolForm form = pool_form(node, node.input(0).type.shape).value();
  Work work = function_of_output(node, samples, window_cells(form));
  work.scratch = written_out_bytes(form, node.input(0).type.dtype, samples);
  return work;
}
Work gradient_work(const NodeView& node, Samples samples, double (*flops)(const PoolForm&)) {
  const PoolForm form = pool_form(node, node.attributes().get_shape("shape")).value();
  Work work = per_input_element(node, samples, flops(form));
  work.scratch = written_out_bytes(form, node.input(0).type.dtype, samples);
  return work;
}
Work max_pool_gradient_work(const NodeView& node, Samples samples) {
  return gradient_work(node, samples, [](const PoolForm&) { return 1.0; });
}
/// The constant kernel of each channel (runtime/kernels/average_pool.h).
double constant_kernel_bytes(const PoolForm& form) {
  return sizeof(float) * static_cast<double>(form.shape[1].factor) * window_cells(form);
}
/// As a depthwise convolution is priced, of planes of `x`.
Work as_depthwise(Work work, const PoolForm& form, Samples samples) {
  work.kernel = Kernel::kDepthwise;
  work.flops = 2 * work.flops + wire::kFlopsOfDepthwisePlane * static_cast<double>(form.shape[0].at(samples)) *
                                    static_cast<double>(form.shape[1].factor);
  work.scratch += constant_kernel_bytes(form);
  return work;
}
Work average_pool_work(const NodeView& node, Samples samples) {
  return as_depthwise(pool_work(node, samples), pool_form(node, node.input(0).type.shape).value(), samples);
}
/// The gradient is divided by the number of counted cells, unless that is the same everywhere.
Work average_gradient_work(const NodeView& node, Samples samples) {
  const PoolForm form = pool_form(node, node.attributes().get_shape("shape")).value();
  Work work = as_depthwise(gradient_work(node, samples, window_cells), form, samples);
  const bool has_pads = std::ranges::any_of(form.begin, [](int64_t pad) { return pad != 0; });
  if (form.is_written_out || (has_pads && !form.counts_pads)) work.scratch += bytes_of(node.input(0), samples);
  return work;
}

void emit_max_pool(Emitter& emitter) {
  const PoolCall call{emitter, pool_form(emitter.node(), emitter.node().input(0).type.shape).value()};
  const bool is_plane = call.form.sizes.size() == 2;
  const std::string parts = emitter.local("parts"), function = text("max_pool", call.suffix(), "_with_indices");
  emitter.statement(
      text("auto ", parts, " = ", is_plane ? "graphpipe::runtime::max_pool_2d" : text("at::", function), "(",
           call.x(emitter.in(0), "-std::numeric_limits<double>::infinity()"), ", ", call.kernel_and_strides(), ", ",
           call.pads(), ", ", call.axes(call.form.window.dilations, 1), ", ", boolean(call.form.rounds_up), ")"),
      is_plane ? "runtime/kernels/max_pool.h" : call.header(function));
  for (size_t i = 0; i < 2; ++i) {
    const std::string part = text("std::get<", i, ">(", parts, ")");
    emitter.assign(i, call.is_line ? call.line(part) : text("std::move(", part, ")"), "");
  }
}

// Gradient ops carry the forward's attributes and the shape of x.
ir::Attributes with_shape(const GradientBuilder& builder) {
  ir::Attributes attributes = builder.forward().attributes();
  attributes.set("shape", builder.forward().input(0).type.shape);
  return attributes;
}

Status max_pool_gradient(GradientBuilder& builder) {
  GP_TRY_VOID(expect_no_gradient_of_saved(builder, 1));
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0, builder.add_one(0, builder.forward().node().op + "Grad",
                                                {builder.output_gradient(0), builder.output(1)}, with_shape(builder)));
  return Ok{};
}

Inferred infer_pool_gradient(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 2));
  const ir::Shape shape = node.attributes().get_shape("shape");
  GP_TRY_VOID(pool_form(node, shape));
  return one_output(node, {node.input(0).type.dtype, shape});
}

void emit_max_pool_gradient(Emitter& emitter) {
  const PoolCall call{emitter, pool_form(emitter.node(), emitter.node().attributes().get_shape("shape")).value()};
  const std::string function = text("max_pool", call.suffix(), "_with_indices_backward");
  const std::string result =
      text("at::", function, "(", call.plane(emitter.in(0)), ", ", call.x_shape(emitter.in(0)), ", ",
           call.kernel_and_strides(), ", ", call.pads(), ", ", call.axes(call.form.window.dilations, 1), ", ",
           boolean(call.form.rounds_up), ", ", call.plane(emitter.in(1)), ")");
  emitter.assign(0, call.x_gradient(result), call.header(function));
}

// --- AveragePool ---

Inferred infer_average_pool(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  GP_TRY(const PoolForm form, pool_form(node, node.input(0).type.shape));
  if (std::ranges::any_of(form.window.dilations, [](int64_t dilation) { return dilation != 1; })) {
    return problem_at(node, Code::kUnsupportedOp, "averages over a dilated window", "use dilations of 1");
  }
  return one_output(node, {node.input(0).type.dtype, output_shape(form)});
}

// ", {kernel}, {strides}, {pads}, rounds up, counts pads": sums, if the pads are written out.
std::string average_arguments(const PoolCall& call) {
  const std::string start = text(", ", call.kernel_and_strides(), ", ", call.pads(), ", ");
  if (call.form.is_written_out) return start + "false, true, 1)";
  return text(start, boolean(call.form.rounds_up), ", ", boolean(call.form.counts_pads), ", std::nullopt)");
}

// The number of counted cells of each window, as a tensor that broadcasts to y. Written-out pads only.
std::string cell_counts(const PoolCall& call, const std::string& like) {
  const PoolForm& form = call.form;
  Ints ones = form.sizes, begin = form.window.begin, end = form.window.end;
  for (size_t axis = 0; form.counts_pads && axis < ones.size(); ++axis) {
    ones[axis] += form.begin[axis] + form.end[axis];
    begin[axis] -= form.begin[axis];
    end[axis] -= form.end[axis];
  }
  ones.insert(ones.begin(), 1);
  call.emitter.include("ATen/ops/ones.h");
  const std::string cells = text("at::ones(", list(ones), ", ", like, ".options())");
  const std::string plane = padded(call.emitter, cells, begin, end) + (call.is_line ? ".unsqueeze(1)" : "");
  const std::string counts = text("at::avg_pool", call.suffix(), "(", plane, average_arguments(call));
  return call.is_line ? counts + ".squeeze(1)" : counts;
}

// Of lines and planes the runtime's own function.
constexpr std::string_view kAveragePool = "runtime/kernels/average_pool.h";

void emit_average_pool(Emitter& emitter) {
  const PoolCall call{emitter, pool_form(emitter.node(), emitter.node().input(0).type.shape).value()};
  const bool is_volume = call.form.sizes.size() == 3;
  const std::string_view function = is_volume ? "at::avg_pool3d(" : "graphpipe::runtime::average_pool_2d(";
  std::string result = call.line(text(function, call.x(emitter.in(0), "0.0"), average_arguments(call)));
  if (call.form.is_written_out) {
    result += text(".div_(", cell_counts(call, emitter.in(0)), ")");
    emitter.include(text("ATen/ops/avg_pool", call.suffix(), ".h"));
  }
  emitter.assign(0, result, is_volume ? call.header("avg_pool3d") : kAveragePool);
}

Status average_pool_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  builder.set_input_gradient(0,
                             builder.add_one(0, "AveragePoolGrad", {builder.output_gradient(0)}, with_shape(builder)));
  return Ok{};
}

void emit_average_pool_gradient(Emitter& emitter) {
  const PoolCall call{emitter, pool_form(emitter.node(), emitter.node().attributes().get_shape("shape")).value()};
  const bool is_volume = call.form.sizes.size() == 3;
  const std::string_view function =
      is_volume ? "at::avg_pool3d_backward(" : "graphpipe::runtime::average_pool_2d_gradient(";
  std::string gradient = emitter.in(0);
  if (call.form.is_written_out) {
    gradient += text(".div(", cell_counts(call, emitter.in(0)), ")");
    emitter.include(text("ATen/ops/avg_pool", call.suffix(), ".h"));
  }
  emitter.assign(
      0,
      call.x_gradient(text(function, call.plane(gradient), ", ", call.x_shape(emitter.in(0)), average_arguments(call))),
      is_volume ? call.header("avg_pool3d_backward") : kAveragePool);
}

// --- GlobalAveragePool: the mean over the spatial axes, which stay as ones ---

Inferred infer_global_average(const NodeView& node) {
  GP_TRY_VOID(expect_inputs(node, 1, 1));
  GP_TRY_VOID(expect_floating(node, {0}));
  ir::Shape shape = node.input(0).type.shape;
  GP_TRY_VOID(spatial_sizes(node, shape));
  std::fill(shape.begin() + 2, shape.end(), ir::Dim::fixed(1));
  return one_output(node, {node.input(0).type.dtype, std::move(shape)});
}

Work mean_work(const NodeView& node, Samples samples) { return per_input_element(node, samples, 1); }

void emit_global_average(Emitter& emitter) {
  Ints axes;
  for (size_t axis = 2; axis < emitter.node().input(0).type.shape.size(); ++axis) {
    axes.push_back(static_cast<int64_t>(axis));
  }
  emitter.assign(0, text("at::mean(", emitter.in(0), ", at::IntArrayRef(", list(axes), "), true)"), "ATen/ops/mean.h");
}

Status global_average_gradient(GradientBuilder& builder) {
  if (!builder.wants(0)) return Ok{};
  const ir::Shape& shape = builder.forward().input(0).type.shape;
  double cells = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) cells *= static_cast<double>(shape[axis].factor);
  const ir::ValueId share = builder.add_one(0, "Scale", {builder.output_gradient(0)}, {{"factor", 1 / cells}});
  builder.set_input_gradient(0, builder.add_one(0, "Expand", {share}, {{"shape", shape}}));
  return Ok{};
}

// --- entries ---

Example pool_example(const ExampleShape& x, ir::Attributes attributes, size_t outputs) {
  return {.inputs = {distinct(x)}, .attributes = std::move(attributes), .outputs = outputs};
}

std::vector<ir::Attributes> plane_attributes() {
  return {{{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 0}}},
          {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}},
          {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{1, 2}}, {"pads", Ints{0, 1, 1, 2}}}};
}

std::vector<Example> max_pool_examples() {
  std::vector<Example> examples;
  for (ir::Attributes& each : plane_attributes()) examples.push_back(pool_example({kB, 2, 5, 5}, std::move(each), 2));
  examples.push_back(pool_example({kB, 2, 7}, {{"kernel_shape", Ints{3}}, {"dilations", Ints{2}}}, 2));
  examples.push_back(pool_example({kB, 1, 4, 3, 3}, {{"kernel_shape", Ints{2, 2, 2}}, {"strides", Ints{2, 1, 1}}}, 2));
  return examples;
}

std::vector<Example> average_pool_examples() {
  std::vector<Example> examples;
  for (const int64_t counts : {0, 1}) {
    for (ir::Attributes each : plane_attributes()) {
      each.set("count_include_pad", counts);
      examples.push_back(pool_example({kB, 2, 5, 5}, std::move(each), 1));
    }
    const ir::Attributes line = {{"kernel_shape", Ints{3}}, {"pads", Ints{0, 2}}, {"count_include_pad", counts}};
    examples.push_back(pool_example({kB, 2, 6}, line, 1));
  }
  examples.push_back(pool_example({kB, 1, 4, 3, 3}, {{"kernel_shape", Ints{2, 2, 2}}, {"strides", Ints{2, 1, 1}}}, 1));
  return examples;
}

// The gradient ops of a window of 2 with stride 2 over [B, 2, 4].
Example gradient_example(bool is_max) {
  const ir::Shape x = {kB, ir::Dim::fixed(2), ir::Dim::fixed(4)};
  Example example{.inputs = {normal({kB, 2, 2})},
                  .attributes = {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}, {"shape", x}}};
  if (is_max) example.inputs.push_back(integers({kB, 2, 2}, 0, 4));
  return example;
}

Example global_gradient_example() {
  const ir::Shape x = {kB, ir::Dim::fixed(2), ir::Dim::fixed(4)};
  return {.inputs = {normal({kB, 2, 1}), integers({kB, 2, 1}, 0, 4)}, .attributes = {{"shape", x}}};
}

std::vector<OpDef> max_pool_rows() {
  return {{.name = "MaxPool",
           .infer = infer_max_pool,
           .work = pool_work,
           .gradient = max_pool_gradient,
           .emit = emit_max_pool,
           .owns_outputs = always,
           .examples = max_pool_examples()},
          {.name = "MaxPoolGrad",
           .infer = infer_pool_gradient,
           .work = max_pool_gradient_work,
           .emit = emit_max_pool_gradient,
           .owns_outputs = always,
           .examples = {gradient_example(true)}},
          {.name = "GlobalMaxPool",
           .infer = infer_max_pool,
           .work = pool_work,
           .gradient = max_pool_gradient,
           .emit = emit_max_pool,
           .owns_outputs = always,
           .examples = {pool_example({kB, 2, 3, 4}, {}, 2), pool_example({kB, 2, 4}, {}, 2)}},
          {.name = "GlobalMaxPoolGrad",
           .infer = infer_pool_gradient,
           .work = max_pool_gradient_work,
           .emit = emit_max_pool_gradient,
           .owns_outputs = always,
           .examples = {global_gradient_example()}}};
}

/// LibTorch has no kernel of avg_pool3d for 16 bits on CPUs.
bool is_pool_of_volumes(const NodeView& node) { return node.input(0).type.shape.size() == 5; }

std::vector<OpDef> average_pool_rows() {
  return {{.name = "AveragePool",
           .keeps_float32 = is_pool_of_volumes,
           .infer = infer_average_pool,
           .work = average_pool_work,
           .gradient = average_pool_gradient,
           .emit = emit_average_pool,
           .owns_outputs = always,
           .examples = average_pool_examples()},
          {.name = "AveragePoolGrad",
           .infer = infer_pool_gradient,
           .work = average_gradient_work,
           .emit = emit_average_pool_gradient,
           .owns_outputs = always,
           .examples = {gradient_example(false)}},
          {.name = "GlobalAveragePool",
           .infer = infer_global_average,
           .work = mean_work,
           .gradient = global_average_gradient,
           .emit = emit_global_average,
           .owns_outputs = always,
           .examples = {{.inputs = {normal({kB, 2, 3, 4})}}, {.inputs = {normal({kB, 2, 5})}}}}};
}

}  // namespace

std::span<const OpDef> pool_ops() {
  static const std::vector<OpDef> rows = joined({max_pool_rows(), average_pool_rows()});
  return rows;
}

}  // namespace graphpipe::ops

/* TensorFlow's session behind the peers' line protocol (README.md), through its C API.
 *
 * Every row is a graph with one target (or one fetch). All rewriting is off, so what is timed is
 * what was built: `prepare` traces one step and counts the nodes that ran before it says `ready`.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tensorflow/c/c_api.h"

/* Nodes whose execution is counted carry this prefix; sources and sinks do not. */
#define MEASURED "node_"

typedef struct {
  TF_Graph* graph;
  TF_Session* session;
  TF_Output feed; /* oper is NULL in rows that feed nothing */
  TF_Tensor* fed;
  TF_Output fetch; /* oper is NULL in rows that only have a target */
  const TF_Operation* target;
  long measured; /* nodes named MEASURED so far */
  double units;  /* work in one run; builders leave 0 where it is the number of nodes */
} Row;

static char** self_argv;
static TF_Status* status;

/* ---- failure ------------------------------------------------------------------------------ */

/* TensorFlow's intra-op pool belongs to the process and keeps the size that the first session
 * gave it, so every row gets a process of its own, in place of this one. */
static void restart(const char* row) {
  char* argv[] = {self_argv[0], (char*)row, NULL};
  fflush(stdout);
  execvp(argv[0], argv);
  perror("tf_session: exec");
  exit(1);
}

static void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char reason[400];
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  reason[strcspn(reason, "\n")] = 0;
  printf("absent %s\n", reason);
  restart(NULL);
}

static void check(void) {
  if (TF_GetCode(status) != TF_OK) fail("%s", TF_Message(status));
}

/* ---- protocol buffers: just what ConfigProto, RunOptions and RunMetadata need --------------- */

typedef struct {
  uint8_t bytes[128];
  size_t len;
} Message;

static void put_varint(Message* m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) m->bytes[m->len++] = (uint8_t)(value | 0x80);
  m->bytes[m->len++] = (uint8_t)value;
}

static void put_int(Message* m, int field, int64_t value) {
  put_varint(m, (uint64_t)field << 3);
  put_varint(m, (uint64_t)value);
}

static void put_message(Message* m, int field, const Message* inner) {
  put_varint(m, (uint64_t)field << 3 | 2);
  put_varint(m, inner->len);
  memcpy(m->bytes + m->len, inner->bytes, inner->len);
  m->len += inner->len;
}

typedef struct {
  const uint8_t* at;
  const uint8_t* end;
} Span;

static uint64_t get_varint(Span* s) {
  uint64_t value = 0;
  for (int shift = 0; s->at < s->end && shift < 64; shift += 7) {
    uint8_t byte = *s->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

/* Moves to the next length-delimited field `wanted` of `message`; false at the end. */
static bool next_field(Span* message, uint64_t wanted, Span* body) {
  while (message->at < message->end) {
    uint64_t tag = get_varint(message);
    switch (tag & 7) {
      case 0: get_varint(message); continue;
      case 1: message->at += 8; continue;
      case 5: message->at += 4; continue;
      case 2: break;
      default: fail("the trace is not a RunMetadata");
    }
    size_t len = get_varint(message);
    *body = (Span){message->at, message->at + len};
    message->at += len;
    if (tag >> 3 == wanted) return true;
  }
  return false;
}

/* ---- graph building ----------------------------------------------------------------------- */

static TF_OperationDescription* begin(Row* row, const char* op, bool measured) {
  static long others;
  char name[32];
  snprintf(name, sizeof name, "%s%ld", measured ? MEASURED : "other_",
           measured ? row->measured++ : others++);
  return TF_NewOperation(row->graph, op, name);
}

static TF_Output finish(TF_OperationDescription* description) {
  TF_Operation* operation = TF_FinishOperation(description, status);
  check();
  return (TF_Output){operation, 0};
}

static TF_Output node(Row* row, const char* op, int input_count, const TF_Output* inputs) {
  TF_OperationDescription* description = begin(row, op, true);
  for (int i = 0; i < input_count; i++) TF_AddInput(description, inputs[i]);
  return finish(description);
}

static TF_Output constant(Row* row, TF_Tensor* value, bool measured) {
  TF_OperationDescription* description = begin(row, "Const", measured);
  TF_SetAttrType(description, "dtype", TF_TensorType(value));
  TF_SetAttrTensor(description, "value", value, status);
  check();
  TF_DeleteTensor(value);
  return finish(description);
}

static int64_t element_count(int rank, const int64_t* dims) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  return count;
}

/* Floats spread over [-1, 1): no denormals, no infinities in exp or softmax. */
static TF_Tensor* floats(int rank, const int64_t* dims) {
  int64_t count = element_count(rank, dims);
  TF_Tensor* tensor = TF_AllocateTensor(TF_FLOAT, dims, rank, (size_t)count * sizeof(float));
  float* values = TF_TensorData(tensor);
  uint32_t state = 1;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(int32_t)state / 2147483648.0f;
  }
  return tensor;
}

static TF_Output float_constant(Row* row, int rank, const int64_t* dims) {
  return constant(row, floats(rank, dims), false);
}

static TF_Output int_vector(Row* row, int64_t count, const int32_t* values) {
  size_t len = (size_t)count * sizeof *values;
  TF_Tensor* tensor = TF_AllocateTensor(TF_INT32, &count, 1, len);
  memcpy(TF_TensorData(tensor), values, len);
  return constant(row, tensor, false);
}

static TF_Output int_scalar(Row* row, int32_t value) {
  TF_Tensor* tensor = TF_AllocateTensor(TF_INT32, NULL, 0, sizeof value);
  memcpy(TF_TensorData(tensor), &value, sizeof value);
  return constant(row, tensor, false);
}

/* The value that every run feeds: what depends on it cannot be folded. */
static TF_Output placeholder(Row* row, int rank, const int64_t* dims) {
  TF_OperationDescription* description = begin(row, "Placeholder", false);
  TF_SetAttrType(description, "dtype", TF_FLOAT);
  TF_SetAttrShape(description, "shape", dims, rank);
  row->fed = floats(rank, dims);
  row->feed = finish(description);
  return row->feed;
}

/* One target that waits for all of `last`, so that a run names one operation however wide. */
static void target_all(Row* row, int count, const TF_Output* last) {
  TF_OperationDescription* description = begin(row, "NoOp", false);
  for (int i = 0; i < count; i++) TF_AddControlInput(description, last[i].oper);
  row->target = finish(description).oper;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* `a` and `b` are what the name of the row says: layers and width, rows and columns. */
typedef struct {
  const char* name;
  void (*build)(Row* row, int a, int b, const char* op);
  int a, b;
  const char* op;
} RowSpec;

static void no_op(Row* row, int a, int b, const char* op) {
  (void)a, (void)b;
  row->target = node(row, op, 0, NULL).oper;
}

static void scalar_fetch(Row* row, int a, int b, const char* op) {
  (void)a, (void)b, (void)op;
  row->fetch = constant(row, floats(0, NULL), true);
}

static void scalar_feed_fetch(Row* row, int a, int b, const char* op) {
  (void)a, (void)b;
  TF_Output source = placeholder(row, 0, NULL);
  row->fetch = node(row, op, 1, &source);
}

/* `width` NoOps side by side in each layer, each after the one at its place in the layer before. */
static void noop_layers(Row* row, int layers, int width, const char* op) {
  TF_Output* last = calloc((size_t)width, sizeof *last);
  for (int layer = 0; layer < layers; layer++) {
    for (int i = 0; i < width; i++) {
      TF_OperationDescription* description = begin(row, op, true);
      if (layer > 0) TF_AddControlInput(description, last[i].oper);
      last[i] = finish(description);
    }
  }
  target_all(row, width, last);
  free(last);
}

static void identity_layers(Row* row, int layers, int width, const char* op) {
  TF_Output* last = calloc((size_t)width, sizeof *last);
  TF_Output source = placeholder(row, 0, NULL);
  for (int i = 0; i < width; i++) last[i] = source;
  for (int layer = 0; layer < layers; layer++) {
    for (int i = 0; i < width; i++) last[i] = node(row, op, 1, &last[i]);
  }
  target_all(row, width, last);
  free(last);
}

/* Vectors of 4. In layers each node adds two neighbours; in a chain it adds the fed vector, so that
 * its first input has one consumer and the buffer can be handed on. */
static void add_layers(Row* row, int layers, int width, const char* op) {
  TF_Output* last = calloc((size_t)width, sizeof *last);
  TF_Output* next = calloc((size_t)width, sizeof *next);
  TF_Output source = placeholder(row, 1, (int64_t[]){4});
  for (int i = 0; i < width; i++) last[i] = source;
  for (int layer = 0; layer < layers; layer++) {
    for (int i = 0; i < width; i++) {
      TF_Output second = width > 1 ? last[(i + 1) % width] : source;
      next[i] = node(row, op, 2, (TF_Output[]){last[i], second});
    }
    memcpy(last, next, (size_t)width * sizeof *last);
  }
  target_all(row, width, last);
  free(last);
  free(next);
}

static void matmul(Row* row, int n, int b, const char* op) {
  (void)b;
  int64_t dims[] = {n, n};
  TF_Output inputs[] = {float_constant(row, 2, dims), float_constant(row, 2, dims)};
  row->target = node(row, op, 2, inputs).oper;
  row->units = 2.0 * n * n * n;
}

static void unary(Row* row, int rows, int columns, const char* op) {
  TF_Output input = float_constant(row, 2, (int64_t[]){rows, columns});
  row->target = node(row, op, 1, &input).oper;
  row->units = (double)rows * columns;
}

static void binary(Row* row, int rows, int columns, const char* op) {
  int64_t dims[] = {rows, columns};
  TF_Output inputs[] = {float_constant(row, 2, dims), float_constant(row, 2, dims)};
  row->target = node(row, op, 2, inputs).oper;
  row->units = (double)rows * columns;
}

static void sum_all(Row* row, int rows, int columns, const char* op) {
  TF_Output input = float_constant(row, 2, (int64_t[]){rows, columns});
  TF_Output axes = int_vector(row, 2, (int32_t[]){0, 1});
  row->target = node(row, op, 2, (TF_Output[]){input, axes}).oper;
  row->units = (double)rows * columns;
}

static void random_normal(Row* row, int rows, int columns, const char* op) {
  TF_Output shape = int_vector(row, 2, (int32_t[]){rows, columns});
  TF_OperationDescription* description = begin(row, op, true);
  TF_AddInput(description, shape);
  TF_SetAttrType(description, "dtype", TF_FLOAT);
  TF_SetAttrInt(description, "seed", 1);
  row->target = finish(description).oper;
  row->units = (double)rows * columns;
}

static void transpose(Row* row, int rows, int columns, const char* op) {
  TF_Output input = float_constant(row, 2, (int64_t[]){rows, columns});
  TF_Output permutation = int_vector(row, 2, (int32_t[]){1, 0});
  row->target = node(row, op, 2, (TF_Output[]){input, permutation}).oper;
  row->units = (double)rows * columns;
}

/* Eight matrices along axis 1, the one that interleaves their rows. */
static void concat(Row* row, int rows, int columns, const char* op) {
  TF_Output parts[8];
  for (int i = 0; i < 8; i++) parts[i] = float_constant(row, 2, (int64_t[]){rows, columns});
  TF_Output axis = int_scalar(row, 1);
  TF_OperationDescription* description = begin(row, op, true);
  TF_AddInputList(description, parts, 8);
  TF_AddInput(description, axis);
  row->target = finish(description).oper;
  row->units = 8.0 * rows * columns;
}

/* `count` rows out of a table of eight times as many, in an order that defeats prefetching. */
static void gather(Row* row, int count, int columns, const char* op) {
  int32_t table_rows = 8 * count;
  int32_t* indices = malloc((size_t)count * sizeof *indices);
  for (int i = 0; i < count; i++) indices[i] = (int32_t)((int64_t)i * 40503 % table_rows);
  TF_Output inputs[] = {float_constant(row, 2, (int64_t[]){table_rows, columns}),
                        int_vector(row, count, indices), int_scalar(row, 0)};
  free(indices);
  row->target = node(row, op, 3, inputs).oper;
  row->units = (double)count * columns;
}

static const RowSpec ROWS[] = {
    {"session/no_op", no_op, 0, 0, "NoOp"},
    {"session/scalar_fetch", scalar_fetch, 0, 0, "Const"},
    {"session/scalar_feed_fetch", scalar_feed_fetch, 0, 0, "Identity"},
    {"dispatch/noop_wide_10k", noop_layers, 1, 10000, "NoOp"},
    {"dispatch/noop_chain_10k", noop_layers, 10000, 1, "NoOp"},
    {"dispatch/identity_chain_10k", identity_layers, 10000, 1, "Identity"},
    {"dispatch/identity_layers_10k", identity_layers, 100, 100, "Identity"},
    {"dispatch/identity_wide_10k", identity_layers, 1, 10000, "Identity"},
    {"dispatch/add_chain_2k", add_layers, 2000, 1, "AddV2"},
    {"dispatch/add_chain_10k", add_layers, 10000, 1, "AddV2"},
    {"dispatch/add_layers_2k", add_layers, 20, 100, "AddV2"},
    {"dispatch/add_layers_10k", add_layers, 100, 100, "AddV2"},
    {"matmul/f32/256", matmul, 256, 0, "MatMul"},
    {"matmul/f32/1024", matmul, 1024, 0, "MatMul"},
    {"matmul/f32/2048", matmul, 2048, 0, "MatMul"},
    {"elementwise/add/1M", binary, 1024, 1024, "AddV2"},
    {"elementwise/mul/1M", binary, 1024, 1024, "Mul"},
    {"elementwise/exp/1M", unary, 1024, 1024, "Exp"},
    {"elementwise/tanh/1M", unary, 1024, 1024, "Tanh"},
    {"reduce/sum/1M", sum_all, 1024, 1024, "Sum"},
    {"softmax/128x1000", unary, 128, 1000, "Softmax"},
    {"random/normal/1M", random_normal, 1024, 1024, "RandomStandardNormal"},
    {"transpose/1024", transpose, 1024, 1024, "Transpose"},
    {"concat/8x128x1024", concat, 128, 1024, "ConcatV2"},
    {"gather/8192x128", gather, 8192, 128, "GatherV2"},
};

/* A row that the driver's own peer wrote down: NAME.pb with one node called MEASURED "0", and
 * NAME.units, in the folder that THALWEG_BENCH_GRAPHS names. */
static void from_file(Row* row, const char* name) {
  const char* folder = getenv("THALWEG_BENCH_GRAPHS");
  char path[4096], base[256];
  snprintf(base, sizeof base, "%s", name);
  for (char* c = base; *c; c++) {
    if (*c == '/') *c = '_';
  }
  snprintf(path, sizeof path, "%s/%s.units", folder ? folder : ".", base);
  FILE* file = fopen(path, "r");
  if (!file || fscanf(file, "%lf", &row->units) != 1) fail("no row %s in the TensorFlow peer", name);
  fclose(file);
  snprintf(path, sizeof path, "%s/%s.pb", folder ? folder : ".", base);
  file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) fail("%s cannot be read", path);
  size_t len = (size_t)ftell(file);
  rewind(file);
  char* bytes = malloc(len);
  if (!bytes || fread(bytes, 1, len, file) != len) fail("%s cannot be read", path);
  fclose(file);
  TF_Buffer* buffer = TF_NewBufferFromString(bytes, len);
  free(bytes);
  TF_ImportGraphDefOptions* options = TF_NewImportGraphDefOptions();
  TF_GraphImportGraphDef(row->graph, buffer, options, status);
  check();
  TF_DeleteImportGraphDefOptions(options);
  TF_DeleteBuffer(buffer);
  row->target = TF_GraphOperationByName(row->graph, MEASURED "0");
  if (!row->target) fail("%s has no node " MEASURED "0", path);
  row->measured = 1;
}

/* ---- running ------------------------------------------------------------------------------ */

static void run_once(const Row* row, const TF_Buffer* options, TF_Buffer* metadata) {
  TF_Tensor* fetched = NULL;
  TF_SessionRun(row->session, options, &row->feed, &row->fed, row->feed.oper != NULL, &row->fetch,
                &fetched, row->fetch.oper != NULL, &row->target, row->target != NULL, metadata,
                status);
  check();
  if (fetched) TF_DeleteTensor(fetched);
}

/* One working thread is the caller's (-1): a pool of one would add a wake-up to every step. Rows of
 * a single kernel share it out by the intra-op pool, so more than that is for dispatch only. */
static void open_session(Row* row, int threads) {
  int inter_op_threads = threads > 1 && row->measured > 1 ? threads : -1;
  Message optimizer = {.len = 0}, rewriter = {.len = 0}, graph = {.len = 0}, config = {.len = 0};
  put_int(&optimizer, 2, 0);  /* do_constant_folding */
  put_int(&optimizer, 3, -1); /* opt_level: L0 */
  put_int(&rewriter, 19, 1);  /* disable_meta_optimizer */
  put_message(&graph, 3, &optimizer);
  put_message(&graph, 10, &rewriter);
  put_int(&config, 2, threads);          /* intra_op_parallelism_threads */
  put_int(&config, 5, inter_op_threads); /* inter_op_parallelism_threads */
  put_message(&config, 10, &graph);

  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_SetConfig(options, config.bytes, config.len, status);
  check();
  row->session = TF_NewSession(row->graph, options, status);
  check();
  TF_DeleteSessionOptions(options);
}

/* Runs one traced step and counts the measured nodes in its StepStats. */
static long traced_count(const Row* row) {
  Message options = {.len = 0};
  put_int(&options, 1, 1); /* trace_level: SOFTWARE_TRACE */
  TF_Buffer* options_buffer = TF_NewBufferFromString(options.bytes, options.len);
  TF_Buffer* metadata = TF_NewBuffer();
  run_once(row, options_buffer, metadata);

  long count = 0;
  Span whole = {metadata->data, (const uint8_t*)metadata->data + metadata->length};
  Span step, device, stats, name;
  while (next_field(&whole, 1, &step)) {
    while (next_field(&step, 1, &device)) {
      while (next_field(&device, 2, &stats)) {
        if (next_field(&stats, 1, &name) && name.end - name.at >= (long)strlen(MEASURED) &&
            memcmp(name.at, MEASURED, strlen(MEASURED)) == 0) {
          count++;
        }
      }
    }
  }
  TF_DeleteBuffer(options_buffer);
  TF_DeleteBuffer(metadata);
  return count;
}

/* Takes the thread count off the end of a row's name: ".../2t" is 2, no suffix is 1. */
static int split_threads(char* name) {
  char* slash = strrchr(name, '/');
  int threads, used = 0;
  if (slash && sscanf(slash, "/%dt%n", &threads, &used) == 1 && used && !slash[used]) {
    *slash = 0;
    return threads;
  }
  return 1;
}

static void prepare(Row* row, char* name) {
  int threads = split_threads(name);
  const RowSpec* spec = NULL;
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    if (strcmp(ROWS[i].name, name) == 0) spec = &ROWS[i];
  }
  if (threads < 1) fail("no row %s in the TensorFlow peer", name);

  row->graph = TF_NewGraph();
  if (spec) {
    spec->build(row, spec->a, spec->b, spec->op);
  } else {
    from_file(row, name);
  }
  open_session(row, threads);

  /* The first steps compile the plan and teach the executor which kernels are expensive. */
  for (int i = 0; i < 10; i++) run_once(row, NULL, NULL);
  long executed = traced_count(row);
  if (executed != row->measured) {
    fail("%ld of %ld nodes of %s were executed", executed, row->measured, name);
  }
  printf("ready %.0f\n", row->units > 0 ? row->units : (double)executed);
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  self_argv = argv;
  /* Unbuffered, so that a restart finds all input that was not yet answered. */
  setvbuf(stdin, NULL, _IONBF, 0);
  setvbuf(stdout, NULL, _IOLBF, 0);
  status = TF_NewStatus();

  Row row = {0};
  char line[256];
  if (argc > 1) prepare(&row, argv[1]);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    long runs;
    if (strncmp(line, "prepare ", 8) == 0) {
      if (row.graph) restart(line + 8);
      prepare(&row, line + 8);
    } else if (row.session && sscanf(line, "run %ld", &runs) == 1) {
      double start = seconds_now();
      for (long i = 0; i < runs; i++) run_once(&row, NULL, NULL);
      printf("%.9f\n", seconds_now() - start);
    } else if (strcmp(line, "quit") == 0) {
      return 0;
    } else {
      fail("cannot answer '%s'", line);
    }
  }
  return 0;
}

/* Exchange.pml - rows, flags and reuse of buffers (runtime/protocol/Protocol.h)
 *
 * Every rank runs LAYERS layers of one exchange, or of two that alternate: q and
 * out, or query gather and combine. What a producer pushes into a consumer's
 * buffer is modelled as one cell that holds the exchange's epoch. A consumer
 * reads its cells twice, since a kernel reads for as long as it runs: both times
 * they must be of its own epoch.
 *
 * Memory is sequentially consistent, which release and acquire buy; NO_RELEASE
 * takes that away for the one order that matters.
 *
 *   RANKS, LAYERS   sizes
 *   LONE            one exchange instead of an alternating pair
 *   FIRSTS          of the first exchange before each of the second (1)
 *   OVERLAP         the first exchange (a gather of KV) starts before the second
 *                   and finishes behind it; both are read then
 *   GENERATIONS     buffers per exchange, used in turn (1 or 2)
 *   SECOND          those of the second exchange, where they differ
 *   FLAG_LINES      flags per exchange and producer, used in turn (2 as shipped)
 *   EMPTY           rank 0 has no rows: it pushes and reads nothing
 * and what must not be done:
 *   EXACT           wait for the epoch itself rather than at least it
 *   SILENT          a rank without rows does not signal
 *   NO_WAIT         a rank without rows does not wait in the second exchange
 *   NO_RELEASE      the flag may become visible before the rows
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef LAYERS
#define LAYERS 3
#endif
#ifndef GENERATIONS
#define GENERATIONS 1
#endif
#ifndef FLAG_LINES
#define FLAG_LINES 2
#endif
#ifndef SECOND
#define SECOND GENERATIONS
#endif
#ifndef FIRSTS
#define FIRSTS 1
#endif

#define PAIRS (RANKS * RANKS)
#define INDEX(exchange, copies, copy, consumer, producer) \
  (((exchange) * (copies) + (copy)) * PAIRS + (consumer) * RANKS + (producer))

byte cells[2 * 2 * PAIRS];
byte flags[2 * FLAG_LINES * PAIRS];

#define CELL(exchange, consumer, producer) \
  cells[INDEX(exchange, 2, epoch % (exchange == 0 -> GENERATIONS : SECOND), \
              consumer, producer)]
#define FLAG(exchange, consumer, producer) \
  flags[INDEX(exchange, FLAG_LINES, epoch % FLAG_LINES, consumer, producer)]

#ifdef EXACT
#define ARRIVED(flag) ((flag) == epoch)
#else
#define ARRIVED(flag) ((flag) >= epoch)
#endif

#ifdef EMPTY
#define IS_EMPTY (self == 0)
#else
#define IS_EMPTY false
#endif

inline pushAndSignal(exchange) {
  peer = 0;
  do
  :: peer < RANKS ->
#ifdef NO_RELEASE
     if
     :: FLAG(exchange, peer, self) = epoch; CELL(exchange, peer, self) = epoch
     :: CELL(exchange, peer, self) = epoch; FLAG(exchange, peer, self) = epoch
     fi;
#else
     CELL(exchange, peer, self) = epoch;
     FLAG(exchange, peer, self) = epoch;
#endif
     peer++
  :: else -> break
  od
}

inline await(exchange) {
  peer = 0;
  do
  :: peer < RANKS -> ARRIVED(FLAG(exchange, self, peer)); peer++
  :: else -> break
  od
}

inline readTwice(exchange) {
  pass = 0;
  do
  :: pass < 2 ->
     peer = 0;
     do
     :: peer < RANKS -> assert(CELL(exchange, self, peer) == epoch); peer++
     :: else -> break
     od;
     pass++
  :: else -> break
  od
}

active [RANKS] proctype rank() {
  byte self = _pid;
  byte layer = 1;
  byte first;
  byte epoch;
  byte peer;
  byte pass;
  do
  :: layer <= LAYERS ->
#ifdef OVERLAP
     epoch = layer;
     pushAndSignal(0);
     pushAndSignal(1);
     await(1);
     await(0);
     readTwice(1);
     readTwice(0);
#else
     first = 0;
     do
     :: first < FIRSTS ->
        epoch = (layer - 1) * FIRSTS + first + 1;
#ifdef SILENT
        if :: IS_EMPTY :: else -> pushAndSignal(0) fi;
#else
        pushAndSignal(0);
#endif
        await(0);
        if :: IS_EMPTY :: else -> readTwice(0) fi;
        first++
     :: else -> break
     od;
#ifndef LONE
     epoch = layer;
#ifdef SILENT
     if :: IS_EMPTY :: else -> pushAndSignal(1) fi;
#else
     pushAndSignal(1);
#endif
#ifdef NO_WAIT
     if :: IS_EMPTY :: else -> await(1) fi;
#else
     await(1);
#endif
     if :: IS_EMPTY :: else -> readTwice(1) fi;
#endif
#endif
     layer++
  :: else -> break
  od
}

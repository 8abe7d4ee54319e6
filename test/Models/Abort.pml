/* Abort.pml - every survivor ends (runtime/host/Communicator.cpp)
 *
 * Rank 0 may die between any two of its steps, and may find an error of its own
 * and tell the others, and die while it does. Telling takes two steps per peer,
 * claim and post, so that what is read is never half written. A survivor that
 * learns of an error tells everybody in turn. A watchdog per survivor sees the
 * control socket of a dead rank close.
 *
 * Every process must end, and no rank may use rows of another layer.
 *
 *   NO_WATCHDOG   must not be done: nobody looks at the sockets
 *   NO_TELLING    must not be done: errors stay where they are found
 */

#define RANKS 3
#define LAYERS 2

byte cells[2 * RANKS * RANKS];
byte flags[2 * RANKS * RANKS];
bool claimed[RANKS];
bool posted[RANKS];
bool known[RANKS]; /* a rank's own record of the error */
bool dead = false;

#define AT(exchange, consumer, producer) \
  ((exchange) * RANKS * RANKS + (consumer) * RANKS + (producer))
#define FAILED(rank) (known[rank] || posted[rank])

/* Only rank 0 dies. */
inline mayDie() {
  if
  :: self == 0 -> dead = true; goto end
  :: true
  fi
}

inline tellAll() {
  known[self] = true;
#ifndef NO_TELLING
  peer = 0;
  do
  :: peer < RANKS ->
     atomic { first = !claimed[peer]; claimed[peer] = true }
     if
     :: first -> mayDie(); posted[peer] = true
     :: else
     fi;
     peer++
  :: else -> break
  od
#endif
}

inline exchangeRows(exchange) {
  peer = 0;
  do
  :: peer < RANKS ->
     mayDie();
     cells[AT(exchange, peer, self)] = layer;
     flags[AT(exchange, peer, self)] = layer;
     peer++
  :: else -> break
  od;
  peer = 0;
  do
  :: peer < RANKS && !FAILED(self) ->
     if
     :: flags[AT(exchange, self, peer)] >= layer -> peer++
     :: FAILED(self)
     fi
  :: else -> break
  od;
  if
  :: FAILED(self) -> tellAll(); goto end
  :: else
  fi;
  peer = 0;
  do
  :: peer < RANKS ->
     assert(cells[AT(exchange, self, peer)] == layer);
     peer++
  :: else -> break
  od
}

proctype rank(byte self) {
  byte layer = 1;
  byte peer;
  bool first;
  do
  :: layer <= LAYERS ->
     exchangeRows(0);
     if
     :: self == 0 -> tellAll(); goto end /* an error of its own */
     :: true
     fi;
     exchangeRows(1);
     layer++
  :: else -> break
  od;
end: skip
}

proctype watchdog(byte self) {
#ifdef NO_WATCHDOG
  skip
#else
endWatching:
  dead -> known[self] = true
#endif
}

init {
  atomic {
    run rank(0); run rank(1); run rank(2);
    run watchdog(1); run watchdog(2)
  }
}

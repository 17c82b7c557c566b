"""The log in files: a row of segments, each a row of frames with a checksum.

writing   engine.py gives out offsets, writer.py encodes and writes groups, syncer.py waits for the
          disk, tail.py keeps the newest batches, store.py has the row of segments
files     segment.py and frame.py draw the layout, index.py finds offsets, times and topics in it,
          file.py reads and writes, lock.py keeps a second broker out
reading   reader.py for subscribers and ranges, view.py beside a running broker, statistics.py
          counts topics
sealing   sealing.py makes a full segment small, sealer.py does so in the background
damage    recovery.py opens a log after a crash, verify.py checks it, repair.py and salvage.py save
          the frames that can be read
state     state.py has the database beside the log, notes.py the positions in it
"""

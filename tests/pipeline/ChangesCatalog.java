package stepping;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A catalog whose tables offer their changes to Spark. A table (id, name) is a file that is only
 * added to, of lines "version,kind,id,name"; `path` is the directory of the files.
 */
public class ChangesCatalog implements TableCatalog {
  private record Change(long version, String kind, long id, String text) {}

  private static final StructType ROWS =
      new StructType().add("id", DataTypes.LongType).add("name", DataTypes.StringType);
  private static final StructType CHANGES =
      ROWS.add("_change_type", DataTypes.StringType, false)
          .add("_commit_version", DataTypes.LongType, false)
          .add("_commit_timestamp", DataTypes.TimestampType, false);
  private String name;
  private Path path;

  private List<Change> changes(Identifier of) throws NoSuchTableException {
    Path file = path.resolve(of.name() + ".csv");
    if (!Files.exists(file)) {
      throw new NoSuchTableException(of);
    }
    try (var lines = Files.lines(file)) {
      return lines.map(ChangesCatalog::parsed).toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Change parsed(String line) {
    String[] parts = line.split(",");
    return new Change(Long.parseLong(parts[0]), parts[1], Long.parseLong(parts[2]), parts[3]);
  }

  @Override
  public void initialize(String given, CaseInsensitiveStringMap options) {
    name = given;
    path = Path.of(options.get("path"));
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public Table loadTable(Identifier of) throws NoSuchTableException {
    return loadTable(of, String.valueOf(Long.MAX_VALUE));
  }

  @Override
  public Table loadTable(Identifier of, String version) throws NoSuchTableException {
    long last = Long.parseLong(version);
    List<Change> there = new ArrayList<>();
    for (Change c : changes(of)) {
      boolean comes = c.kind.equals("insert") || c.kind.equals("update_postimage");
      if (c.version <= last && comes) {
        there.add(c);
      } else if (c.version <= last) {
        for (int i = 0; i < there.size(); i++) {
          if (there.get(i).id == c.id && there.get(i).text.equals(c.text)) {
            there.remove(i);
            break;
          }
        }
      }
    }
    return new Rows(of.name(), there);
  }

  @Override
  public Changelog loadChangelog(
      Identifier of, ChangelogContext context, CaseInsensitiveStringMap options)
      throws NoSuchTableException {
    if (!(context.range() instanceof ChangelogRange.VersionRange range)) {
      throw new UnsupportedOperationException("only versions");
    }
    long first = Long.parseLong(range.startingVersion());
    long last = range.endingVersion().map(Long::parseLong).orElse(Long.MAX_VALUE);
    List<Change> found = new ArrayList<>();
    for (Change c : changes(of)) {
      boolean begun = range.startingBoundInclusive() ? c.version >= first : c.version > first;
      boolean ended = range.endingBoundInclusive() ? c.version > last : c.version >= last;
      if (begun && !ended) {
        found.add(c);
      }
    }
    return new Log(of.name(), found);
  }

  @Override
  public Table alterTable(Identifier of, TableChange... changes) {
    throw new UnsupportedOperationException();
  }

  @Override
  public boolean dropTable(Identifier of) {
    throw new UnsupportedOperationException();
  }

  @Override
  public void renameTable(Identifier of, Identifier to) {
    throw new UnsupportedOperationException();
  }

  private record Rows(String name, List<Change> there) implements Table, SupportsRead {
    @Override
    public StructType schema() {
      return ROWS;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> scan(ROWS, there);
    }
  }

  private record Log(String name, List<Change> changes) implements Changelog {
    @Override
    public Column[] columns() {
      Column[] found = new Column[CHANGES.size()];
      for (int i = 0; i < found.length; i++) {
        found[i] =
            Column.create(CHANGES.apply(i).name(), CHANGES.apply(i).dataType(), i < 2);
      }
      return found;
    }

    @Override
    public boolean containsCarryoverRows() {
      return false;
    }

    @Override
    public boolean containsIntermediateChanges() {
      return true;
    }

    @Override
    public boolean representsUpdateAsDeleteAndInsert() {
      return false;
    }

    @Override
    public NamedReference[] rowId() {
      return new NamedReference[] {Expressions.column("id")};
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> scan(CHANGES, changes);
    }
  }

  private static Scan scan(StructType columns, List<Change> listed) {
    List<Change> now = List.copyOf(listed);
    return new LocalScan() {
      @Override
      public StructType readSchema() {
        return columns;
      }

      @Override
      public InternalRow[] rows() {
        return now.stream().map(c -> row(columns.size(), c)).toArray(InternalRow[]::new);
      }
    };
  }

  private static InternalRow row(int columns, Change c) {
    Object[] all = {
      c.id, UTF8String.fromString(c.text), UTF8String.fromString(c.kind), c.version, c.version
    };
    return new GenericInternalRow(java.util.Arrays.copyOf(all, columns));
  }
}
